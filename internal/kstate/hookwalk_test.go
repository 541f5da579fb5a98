// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"testing"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/model"
)

func TestHookWalk(t *testing.T) {
	n := lab.BuildLineT(t, lab.LineOptions{})
	ns := n.Node(lab.Dut)
	err := ns.Do(func() error {
		w, err := newHookWalk()
		if err != nil {
			return err
		}
		defer w.prog.Close()
		const forward = 2
		if got, err := w.hooks(model.IP4, forward); err != nil || len(got) != 0 {
			t.Errorf("a fresh namespace has forward hooks %v, %v", got, err)
		}
		for _, c := range []string{"nft add table inet t", "nft add chain inet t c { type filter hook forward priority 7 ; }"} {
			if err := ns.Exec("%s", c); err != nil {
				return err
			}
		}
		for _, family := range []model.Family{model.IP4, model.IP6} {
			got, err := w.hooks(family, forward)
			if err != nil {
				return err
			}
			if len(got) != 1 || got[0].Priority != 7 || got[0].Function != "nft_do_chain_inet" {
				t.Errorf("%s: walked %v, want one nft_do_chain_inet of priority 7", family, got)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
