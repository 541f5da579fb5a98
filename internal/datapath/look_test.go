// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"runtime"
	"testing"

	"github.com/shuntnet/shunt/internal/bpfobj"
)

// TestLook: notes of connections are followed only where what lies there can be read whatever it is by now, and the namespace of a device is known.
func TestLook(t *testing.T) {
	t.Parallel()
	noted := bpfobj.LookUp
	if runtime.GOARCH == "amd64" { // reads are done in their order
		noted = bpfobj.LookNoted
	}
	for _, c := range []struct {
		f    Features
		want uint8
	}{
		{Features{Peek: bpfobj.PeekCast, Ctx: bpfobj.CtxCast}, noted},
		{Features{Peek: bpfobj.PeekCast}, bpfobj.LookUp},
		{Features{Peek: bpfobj.PeekProbe, Ctx: bpfobj.CtxCast}, bpfobj.LookUp},
		{Features{Peek: bpfobj.PeekProbe, Ctx: bpfobj.CtxProbe}, bpfobj.LookUp},
	} {
		if got := c.f.look(); got != c.want {
			t.Errorf("peek %d, context %d: looks by %d, want %d", c.f.Peek, c.f.Ctx, got, c.want)
		}
	}
}
