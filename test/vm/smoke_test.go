// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/binary"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// counter loads a program that counts the frames of testFrame's ethertype and returns verdict.
func counter(t *testing.T, kind ebpf.ProgramType, verdict int32) (*ebpf.Program, *ebpf.Map) {
	t.Helper()
	count, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatalf("making a map: %v", err)
	}
	t.Cleanup(func() { count.Close() })

	// struct xdp_md has data and data_end at 0 and 4, struct __sk_buff at 76 and 80.
	data, end := int16(0), int16(4)
	if kind == ebpf.SchedCLS {
		data, end = 76, 80
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "count", Type: kind, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, data, asm.Word),
			asm.LoadMem(asm.R3, asm.R1, end, asm.Word),
			asm.Mov.Reg(asm.R4, asm.R2),
			asm.Add.Imm(asm.R4, 14),
			asm.JGT.Reg(asm.R4, asm.R3, "out"),
			asm.LoadMem(asm.R4, asm.R2, 12, asm.Half),
			asm.HostTo(asm.BE, asm.R4, asm.Half),
			asm.JNE.Imm(asm.R4, 0x88b5, "out"),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, count.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, verdict).WithSymbol("out"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatalf("loading a counting program of type %s: %+v", kind, err)
	}
	t.Cleanup(func() { program.Close() })
	return program, count
}

// expectCount waits for the counter to reach want, and a little longer to see it stay there.
func expectCount(t *testing.T, count *ebpf.Map, want uint64) {
	t.Helper()
	var have uint64
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err := count.Lookup(uint32(0), &have); err != nil {
			t.Fatalf("reading the counter: %v", err)
		}
		if have >= want {
			break
		}
	}
	if have != want {
		t.Fatalf("the program saw %d frames, want %d", have, want)
	}
}

func TestXDP(t *testing.T) {
	for _, mode := range []struct {
		name  string
		flags link.XDPAttachFlags
	}{{"native", link.XDPDriverMode}, {"generic", link.XDPGenericMode}} {
		t.Run(mode.name, func(t *testing.T) {
			namespace(t)
			near, far := vethPair(t, "near", "far")
			program, count := counter(t, ebpf.XDP, 2) // XDP_PASS
			attached, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: far.Attrs().Index, Flags: mode.flags})
			if err != nil {
				t.Fatalf("attaching: %v", err)
			}
			send(t, near, testFrame(near.Attrs().HardwareAddr))
			expectCount(t, count, 1)
			if err := attached.Close(); err != nil {
				t.Fatalf("detaching: %v", err)
			}
			send(t, near, testFrame(near.Attrs().HardwareAddr))
			time.Sleep(50 * time.Millisecond)
			expectCount(t, count, 1)
		})
	}
}

// tcx is in kernels from 6.6 on, and only there.
func TestTCX(t *testing.T) {
	namespace(t)
	near, far := vethPair(t, "near", "far")
	program, count := counter(t, ebpf.SchedCLS, -1) // TC_ACT_UNSPEC
	attached, err := link.AttachTCX(link.TCXOptions{Program: program, Interface: far.Attrs().Index, Attach: ebpf.AttachTCXIngress})
	if !atLeast(t, 6, 6) {
		if !errors.Is(err, ebpf.ErrNotSupported) {
			t.Fatalf("attaching before 6.6: %v, want %v", err, ebpf.ErrNotSupported)
		}
		return
	}
	if err != nil {
		t.Fatalf("attaching: %v", err)
	}
	defer attached.Close()
	send(t, near, testFrame(near.Attrs().HardwareAddr))
	expectCount(t, count, 1)
}

// The clsact qdisc is the way to TC on every kernel, the only one before 6.6.
func TestClsact(t *testing.T) {
	namespace(t)
	near, far := vethPair(t, "near", "far")
	program, count := counter(t, ebpf.SchedCLS, -1)
	index := far.Attrs().Index
	if err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}); err != nil {
		t.Fatalf("adding clsact: %v", err)
	}
	if err := netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
		Fd:          program.FD(), Name: "count", DirectAction: true,
	}); err != nil {
		t.Fatalf("adding the filter: %v", err)
	}
	send(t, near, testFrame(near.Attrs().HardwareAddr))
	expectCount(t, count, 1)
}

func TestDevices(t *testing.T) {
	filtering := true
	for _, device := range []struct {
		kind string
		make func(lower int) netlink.Link
	}{
		{"vlan", func(lower int) netlink.Link {
			a := attrs("dev")
			a.ParentIndex = lower
			return &netlink.Vlan{LinkAttrs: a, VlanId: 5, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
		}},
		{"vlan", func(lower int) netlink.Link { // the outer tag of QinQ
			a := attrs("dev")
			a.ParentIndex = lower
			return &netlink.Vlan{LinkAttrs: a, VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021AD}
		}},
		{"vrf", func(int) netlink.Link { return &netlink.Vrf{LinkAttrs: attrs("dev"), Table: 100} }},
		{"bond", func(int) netlink.Link {
			b := netlink.NewLinkBond(attrs("dev"))
			b.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
			return b
		}},
		{"bridge", func(int) netlink.Link {
			return &netlink.Bridge{LinkAttrs: attrs("dev"), VlanFiltering: &filtering}
		}},
		{"dummy", func(int) netlink.Link { return &netlink.Dummy{LinkAttrs: attrs("dev")} }},
		{"vxlan", func(int) netlink.Link { return &netlink.Vxlan{LinkAttrs: attrs("dev"), VxlanId: 42, Port: 4789} }},
		{"macvlan", func(lower int) netlink.Link {
			a := attrs("dev")
			a.ParentIndex = lower
			return &netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE}
		}},
		{"ipvlan", func(lower int) netlink.Link {
			a := attrs("dev")
			a.ParentIndex = lower
			return &netlink.IPVlan{LinkAttrs: a, Mode: netlink.IPVLAN_MODE_L2}
		}},
	} {
		t.Run(device.kind, func(t *testing.T) {
			namespace(t)
			lower, _ := vethPair(t, "near", "far")
			addLink(t, device.make(lower.Attrs().Index))
			made := up(t, "dev")
			if made.Type() != device.kind {
				t.Errorf("the kernel made a %s, want a %s", made.Type(), device.kind)
			}
		})
	}
}

// A bond and a VRF take members, which is more than existing.
func TestMasters(t *testing.T) {
	for name, master := range map[string]netlink.Link{
		"vrf":    &netlink.Vrf{LinkAttrs: attrs("dev"), Table: 100},
		"bridge": &netlink.Bridge{LinkAttrs: attrs("dev")},
		"bond":   netlink.NewLinkBond(attrs("dev")),
	} {
		t.Run(name, func(t *testing.T) {
			namespace(t)
			addLink(t, master)
			above := up(t, "dev")
			port, _ := vethPair(t, "near", "far")
			if err := netlink.LinkSetDown(port); err != nil { // which a bond wants
				t.Fatal(err)
			}
			if err := netlink.LinkSetMaster(port, above); err != nil {
				t.Fatalf("putting a device under a %s: %v", name, err)
			}
			if have := up(t, "near").Attrs().MasterIndex; have != above.Attrs().Index {
				t.Errorf("master is %d, want %d", have, above.Attrs().Index)
			}
		})
	}
}

// fib is struct bpf_fib_lookup of linux/bpf.h for IPv4. Addresses are in network byte order.
type fib struct {
	Family, Protocol          uint8
	SourcePort, DestPort      uint16
	Length                    uint16
	Ifindex                   uint32
	TOS                       uint32
	Source                    [4]byte
	_                         [12]byte
	Destination               [4]byte
	_                         [12]byte
	VLANProtocol, VLANTag     uint16
	SourceMAC, DestinationMAC [6]byte
}

func TestFIBLookup(t *testing.T) {
	const success, blackhole = 0, 1 // enum BPF_FIB_LKUP_RET_*
	namespace(t)
	in, _ := vethPair(t, "in", "in-peer")
	out, _ := vethPair(t, "out", "out-peer")
	neighbour := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	run(t, "ip", "address", "add", "10.0.0.1/24", "dev", "in")
	run(t, "ip", "address", "add", "10.0.1.1/24", "dev", "out")
	run(t, "ip", "neighbour", "add", "10.0.1.2", "lladdr", neighbour.String(), "dev", "out")
	run(t, "ip", "route", "add", "192.0.2.0/24", "via", "10.0.1.2")
	run(t, "ip", "route", "add", "blackhole", "198.51.100.0/24")

	request, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(binary.Size(fib{})), MaxEntries: 1})
	if err != nil {
		t.Fatalf("making a map: %v", err)
	}
	defer request.Close()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "fib", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, request.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Reg(asm.R2, asm.R0),
			asm.Mov.Imm(asm.R3, int32(binary.Size(fib{}))),
			asm.Mov.Imm(asm.R4, 0),
			asm.FnFibLookup.Call(),
			asm.Return().WithSymbol("out"),
		},
	})
	if err != nil {
		t.Fatalf("loading: %+v", err)
	}
	defer program.Close()
	lookup := func(destination [4]byte) (uint32, fib) {
		t.Helper()
		f := fib{Family: unix.AF_INET, Length: 100, Ifindex: uint32(in.Attrs().Index), Source: [4]byte{10, 0, 0, 2}, Destination: destination}
		if err := request.Put(uint32(0), f); err != nil {
			t.Fatal(err)
		}
		result, err := program.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
		if err != nil {
			t.Fatalf("running the program: %v", err)
		}
		if err := request.Lookup(uint32(0), &f); err != nil {
			t.Fatal(err)
		}
		return result, f
	}

	result, answer := lookup([4]byte{192, 0, 2, 7})
	if result != success || int(answer.Ifindex) != out.Attrs().Index ||
		string(answer.DestinationMAC[:]) != string(neighbour) || string(answer.SourceMAC[:]) != string(out.Attrs().HardwareAddr) {
		t.Errorf("bpf_fib_lookup of a routed address: %d, %+v; want %d through %s (%d) to %s",
			result, answer, success, out.Attrs().HardwareAddr, out.Attrs().Index, neighbour)
	}
	if result, _ := lookup([4]byte{198, 51, 100, 7}); result != blackhole {
		t.Errorf("bpf_fib_lookup of a blackhole: %d, want %d", result, blackhole)
	}
}

// The tools that later tests configure Linux with, each against its own part of the kernel.
func TestNetfilterTools(t *testing.T) {
	for name, commands := range map[string][]string{
		"nft": {"nft add table inet t", "nft add chain inet t c { type filter hook forward priority 0 ; }",
			"nft add rule inet t c ct state established counter accept", "nft list ruleset"},
		"iptables-legacy": {"iptables-legacy -A FORWARD -s 10.0.0.0/8 -p tcp --dport 80 -m conntrack --ctstate NEW -j DROP", "iptables-legacy -S FORWARD"},
		"iptables-nft":    {"iptables-nft -A FORWARD -s 10.0.0.0/8 -j DROP", "iptables-nft -S FORWARD"},
		"iptables-nat":    {"iptables-legacy -t nat -A POSTROUTING -j MASQUERADE", "iptables-legacy -t nat -S POSTROUTING"},
		"ipset":           {"ipset create s hash:ip", "ipset add s 10.0.0.1", "iptables-legacy -A FORWARD -m set --match-set s src -j DROP"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace(t)
			for _, command := range commands {
				run(t, strings.Fields(command)...)
			}
		})
	}
}

// run runs a program in the test's namespace.
func run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}
