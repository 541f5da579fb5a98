// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	nlmsg "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/model"
)

// TestOwnFilters puts a filter of ours and one of somebody else at clsact, as before Linux 6.6: the kernel shows each classifier twice, once
// without its program, which must not make ours foreign.
func TestOwnFilters(t *testing.T) {
	ns := namespace(t)
	ns.run(t, "ip link add name e0 type veth peer name e1; tc qdisc add dev e0 clsact")
	l, err := netlink.LinkByName("e0")
	if err != nil {
		t.Fatal(err)
	}
	var own uint32
	for prio := uint16(1); prio <= 2; prio++ {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
		if err != nil {
			t.Fatal(err)
		}
		defer prog.Close()
		f := &netlink.BpfFilter{Fd: prog.FD(), Name: "test", DirectAction: true,
			FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: prio, Protocol: unix.ETH_P_ALL}}
		if err := netlink.FilterAdd(f); err != nil {
			t.Fatal(err)
		}
		info, err := prog.Info()
		if err != nil {
			t.Fatal(err)
		}
		if id, _ := info.ID(); prio == 1 {
			own = uint32(id)
		}
	}
	r := open(t, Options{IsOwn: func(id uint32, _ string) bool { return id == own }})
	n, err := r.Read(All)
	if err != nil {
		t.Fatal(err)
	}
	got := n.LinkByName("e0").TCFilters
	if len(got) != 2 || !got[0].Own || got[0].Prio != 1 || got[1].Own || got[1].Prio != 2 {
		t.Errorf("%+v, want ours at priority 1 and another's at 2", got)
	}
}

// TestWhatFiltersAskFor: filters on the way out that ask by what a packet came, and actions that want its connection, are told from those that do not.
func TestWhatFiltersAskFor(t *testing.T) {
	ns := namespace(t)
	ns.run(t, "ip link add name e0 type veth peer name e1; tc qdisc add dev e0 clsact")
	if !ns.try("tc filter add dev e0 egress prio 9 protocol ip u32 match u32 0 0 classid 1:1; tc filter del dev e0 egress prio 9") {
		t.Skip("this kernel has no u32 filters (CONFIG_NET_CLS_U32, a module): tried")
	}
	r := open(t, Options{})
	tried := 0
	for command, want := range map[string]model.TCFilter{
		"u32 match u32 0 0 classid 1:1":                                {Kind: "u32"},
		"u32 match u32 0 0 indev e1 classid 1:1":                       {Kind: "u32", Input: true},
		"u32 match u32 0 0 action mirred egress redirect dev e1":       {Kind: "u32"},
		"u32 match u32 0 0 action connmark":                            {Kind: "u32", Connection: true},
		"flower indev e1 classid 1:1":                                  {Kind: "flower", Input: true},
		"flower action ct":                                             {Kind: "flower", Connection: true},
		"matchall action mirred egress redirect dev e1":                {Kind: "matchall"},
		"matchall action ctinfo dscp 0xfc000000 0x01000000":            {Kind: "matchall", Connection: true},
		"handle 1 fw indev e1 classid 1:1":                             {Kind: "fw", Input: true},
		"u32 match u32 0 0 action gact pass action connmark pipe":      {Kind: "u32", Connection: true},
		"bpf bytecode '1,6 0 0 1,' action mirred egress mirror dev e1": {Kind: "bpf"},
		"bpf bytecode '1,6 0 0 1,' action connmark":                    {Kind: "bpf", Connection: true},
	} {
		if !ns.try("tc filter add dev e0 egress prio 1 protocol ip " + command) {
			continue // not in this kernel
		}
		tried++
		n, err := r.Read(All)
		if err != nil {
			t.Fatal(err)
		}
		got := n.LinkByName("e0").TCFilters
		if want.Prio = 1; len(got) != 1 || got[0].Kind != want.Kind || got[0].Input != want.Input || got[0].Connection != want.Connection {
			t.Errorf("%s: %+v, want %+v", command, got, want)
		}
		ns.run(t, "tc filter del dev e0 egress prio 1")
	}
	if tried < 2 {
		t.Errorf("%d filters could be made, u32 with and without indev at least should", tried)
	}
}

// TestSharedBlocks: clsact has a block of filters for each direction, and one that has its own for what comes in says nothing of what leaves.
func TestSharedBlocks(t *testing.T) {
	ns := namespace(t)
	ns.run(t, "ip link add name e0 type veth peer name e1")
	r := open(t, Options{})
	for command, want := range map[string][2]bool{
		"clsact": {}, "ingress_block 7 clsact": {true, false}, "egress_block 8 clsact": {false, true}, "ingress_block 7 egress_block 8 clsact": {true, true},
		"ingress": {}, "ingress_block 7 ingress": {true, false},
	} {
		ns.run(t, "tc qdisc add dev e0 "+command)
		n, err := r.Read(All)
		if err != nil {
			t.Fatal(err)
		}
		var got [2]bool
		for _, q := range n.LinkByName("e0").Qdiscs {
			got[0], got[1] = got[0] || q.BlockIn, got[1] || q.BlockOut
		}
		if got != want {
			t.Errorf("%s: shared for what comes in and for what leaves: %v, want %v", command, got, want)
		}
		ns.run(t, "tc qdisc del dev e0 "+strings.Fields(command)[len(strings.Fields(command))-1])
	}
}

// TestActionsOfPrograms: a program that only classifies has actions like any other filter, here as the kernel tells of them, which may lack their modules.
func TestActionsOfPrograms(t *testing.T) {
	attribute := func(typ uint16, value []byte) []byte {
		b, err := nlmsg.MarshalAttributes([]nlmsg.Attribute{{Type: typ, Data: value}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for kind, asks := range map[string]bool{"mirred": false, "connmark": true, "ct": true} {
		action := attribute(1, attribute(tcaActKind, append([]byte(kind), 0)))
		msg := make([]byte, tcHeader)
		put32(msg, 8, 1)
		msg = append(msg, attribute(tcaKind, []byte("bpf\x00"))...)
		msg = append(msg, attribute(tcaOptions, attribute(tcaBPFActions, action))...)
		f, err := (&Reader{}).decodeFilter(msg)
		if err != nil || f.Kind != "bpf" || f.Connection != asks {
			t.Errorf("%s: %+v, %v; want that it asks for the connection: %v", kind, f, err, asks)
		}
	}
}

// TestFiltersOfInnerClasses: a packet on its way down a tree of classes meets the filters of those that have classes, and only them.
func TestFiltersOfInnerClasses(t *testing.T) {
	ns := namespace(t)
	ns.run(t, "ip link add name e0 type veth peer name e1")
	r := open(t, Options{})
	for kind, class := range map[string]string{"htb": "htb rate 1gbit", "hfsc": "hfsc sc rate 1gbit"} {
		if !ns.try("tc qdisc add dev e0 root handle 1: " + kind) {
			t.Run(kind, func(t *testing.T) {
				t.Skip("this kernel has no such queueing discipline (CONFIG_NET_SCH_HTB, CONFIG_NET_SCH_HFSC, Linux 2.6.12): tried")
			})
			continue
		}
		ns.run(t, "tc class add dev e0 parent 1: classid 1:1 "+class+"; tc class add dev e0 parent 1:1 classid 1:20 "+class+
			"; tc filter add dev e0 parent 1:1 prio 3 protocol ip u32 match u32 0 0 classid 1:20; tc filter add dev e0 parent 1:20 prio 4 protocol ip u32 match u32 0 0 classid 1:20")
		n, err := r.Read(All)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.LinkByName("e0").TCFilters; len(got) != 1 || got[0].Parent != 0x10001 || got[0].Prio != 3 || len(n.Faults) > 0 {
			t.Errorf("%s: %+v, want the filter of class 1:1 alone (faults %v)", kind, got, n.Faults)
		}
		ns.run(t, "tc qdisc del dev e0 root")
	}
}

// TestQdiscsOfVeths: what is told of the qdiscs of a veth that comes, goes up and down, gets others and leaves for another namespace with them and comes back is what all
// that is read anew says.
func TestQdiscsOfVeths(t *testing.T) {
	ns := namespace(t)
	other := string(ns) + "-2"
	ns.run(t, "ip netns add "+other)
	t.Cleanup(func() { exec.Command("ip", "netns", "del", other).Run() })
	r := open(t, Options{})
	if _, err := r.Read(All); err != nil {
		t.Fatal(err)
	}
	away := "ip link set e0 netns " + other + "; ip -n " + other + " link set e0 up; "
	for _, c := range []string{
		"ip link add name e0 type veth peer name e1",
		"ip link set e0 up; ip link set e1 up",
		"ip link set e0 down",
		"tc qdisc add dev e0 clsact; tc filter add dev e0 ingress prio 3 protocol ip u32 match u32 0 0 classid 1:1",
		"ip link set e0 up",
		away,
		"tc -n " + other + " qdisc add dev e0 clsact; tc -n " + other + " filter add dev e0 ingress prio 3 protocol ip u32 match u32 0 0 classid 1:1; tc -n " + other + " qdisc add dev e0 root pfifo; ip -n " + other + " link set e0 netns " + string(ns),
		"ip link set e0 up",
		"tc qdisc add dev e0 root handle 1: pfifo; ip link set e0 down",
		"tc qdisc del dev e0 root",
		"ip link add name e2 numtxqueues 4 type veth peer name e3; ip link set e2 up; ip link set e3 up; tc qdisc add dev e2 root pfifo; tc qdisc add dev e3 ingress",
		"ip link set e2 down; tc qdisc del dev e2 root; ip link set e2 up",
		away + "ip link del e1",
	} {
		ns.run(t, c)
		quiet(t, r)
		same(t, c, r)
	}
}
