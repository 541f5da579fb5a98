// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// owning starts an nft that stays, and gives a function that ends it.
func (ns netns) owning(t *testing.T, commands string) (end func()) {
	t.Helper()
	cmd := exec.Command("nsenter", "--net=/run/netns/"+string(ns), "nft", "-i")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	end = func() {
		in.Close()
		cmd.Wait()
	}
	t.Cleanup(end)
	if _, err := io.WriteString(in, commands); err != nil {
		t.Fatal(err)
	}
	return end
}

// A table that goes with its owner is gone for the next reading, though the generation is the one from before and no event told of it.
func TestOwnedTableGoes(t *testing.T) {
	ns := namespace(t)
	ns.run(t, "nft add table ip stays")
	if !ns.try("echo 'add table ip probe { flags owner; }' | nft -i") || ns.try("nft list table ip probe") {
		t.Skip("this kernel or nft has no tables with owners (Linux 5.12): tried")
	}
	end := ns.owning(t, "add table ip o { flags owner; chain forward { type filter hook forward priority 0; icmp type echo-request counter drop; }; }\n")
	for deadline := time.Now().Add(patience); !ns.try("nft list chain ip o forward"); {
		if time.Now().After(deadline) {
			t.Fatal("the table does not appear")
		}
		time.Sleep(10 * time.Millisecond)
	}
	r := open(t, Options{})
	n, err := r.Read(All)
	if err != nil || n.Filter.Table(ruleset.IP4, "o") == nil {
		t.Fatalf("the table is not read: %v", err)
	}
	dumps := r.Stats().RuleDumps
	if n, err = r.Read(Netfilter); err != nil || n.Filter.Table(ruleset.IP4, "o") == nil || r.Stats().RuleDumps != dumps {
		t.Fatalf("while it is there: %v, %d readings of all rules, after %d", err, r.Stats().RuleDumps, dumps)
	}
	end()
	for deadline := time.Now().Add(patience); ns.try("nft list table ip o") && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	n, err = r.Read(Netfilter)
	if err != nil || n.Filter.Table(ruleset.IP4, "o") != nil || n.Filter.Table(ruleset.IP4, "stays") == nil {
		t.Errorf("when its owner has ended: %v, tables %+v", err, n.Filter.Tables)
	}
}
