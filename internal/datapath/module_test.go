// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/lab"
)

// A data path that was there before connection tracking looks connections up once the module has come.
func TestConntrackComesLater(t *testing.T) {
	lab.RequireRoot(t)
	if os.Getenv("SHUNT_VM") == "" {
		t.Skip("unloads kernel modules, so it runs in the virtual machines of make test-vm alone")
	}
	unload := exec.Command("modprobe", "-r", "nf_conntrack_netlink", "nf_flow_table", "nf_conntrack")
	if out, err := unload.CombinedOutput(); err != nil {
		t.Skipf("connection tracking is in use here: %v: %s", err, out)
	}
	load := func() {
		if out, err := exec.Command("modprobe", "-a", "nf_conntrack", "nf_conntrack_netlink", "nf_flow_table").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	d, err := Open(Options{PinDir: t.TempDir() + "/bpf", Watchdog: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		load()
		t.Fatal(err)
	}
	defer d.Detach()
	look := func() bool {
		if _, err := d.Snapshot(false); err != nil {
			t.Fatal(err)
		}
		d.Meet(Needs{Conntrack: true})
		return d.Features().Conntrack
	}
	before := look()
	load()
	if after := look(); before || !after {
		t.Errorf("connections can be looked up: %v without the module, %v with it", before, after)
	}
}
