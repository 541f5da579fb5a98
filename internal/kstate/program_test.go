// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"maps"
	"net"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// program loads one that returns a constant.
func program(t *testing.T, name string, typ ebpf.ProgramType, at ebpf.AttachType, ret int32) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: typ, AttachType: at, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, ret), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestLinksInTheMaking lists links while somebody makes others.
func TestLinksInTheMaking(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	prog := program(t, "kstate_comes", ebpf.XDP, ebpf.AttachXDP, 2)
	e0, err := net.InterfaceByName("e0")
	if err != nil {
		t.Fatal(err)
	}
	done, early := make(chan struct{}), make(chan int)
	go func() { // in whichever namespace: links are the machine's
		n := 0
		for k := new(live); ; {
			if _, err := linksNow(); errors.Is(err, unix.EAGAIN) {
				n++
			}
			if _, err := k.netfilterLinks(); err != nil {
				t.Error(err)
			}
			select {
			case <-done:
				early <- n
				return
			default:
			}
		}
	}()
	for until := time.Now().Add(time.Second); time.Now().Before(until); {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: e0.Index, Flags: link.XDPGenericMode})
		if errors.Is(err, unix.EBUSY) { // whoever lists holds the last one for another moment
			continue
		} else if err != nil {
			t.Error(err)
			break
		}
		l.Close()
	}
	close(done)
	t.Logf("%d times a link was not ready", <-early)
}

func TestPrograms(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{IsOwn: own})
	n, err := r.Read(All)
	if err != nil {
		t.Fatal(err)
	}
	quiet(t, r)
	index := n.LinkByName("e0").Index
	if said := n.LinkByName("e0").XDPFeatures != nil; said != (r.genl.netdev != 0) { // the family came with 6.3
		t.Errorf("xdp features of a veth: %t", said)
	}
	for _, c := range []struct {
		name  string
		flags link.XDPAttachFlags
		hook  string
		own   bool
	}{
		{"kstate_own_xdp", link.XDPDriverMode, "xdp", true},
		{"foreign_xdp", link.XDPGenericMode, "xdp-generic", false},
	} {
		l, err := link.AttachXDP(link.XDPOptions{Program: program(t, c.name, ebpf.XDP, ebpf.AttachXDP, 2), Interface: index, Flags: c.flags})
		if err != nil {
			t.Fatal(err)
		}
		if n, err = r.Read(XDP); err != nil { // attaching by a BPF link raises no event
			t.Fatal(err)
		}
		got := n.LinkByName("e0").XDP
		if len(got) != 1 || got[0].Name != c.name || got[0].Hook != c.hook || got[0].Own != c.own {
			t.Errorf("%s: %+v", c.name, got)
		}
		l.Close()
		if n, err = r.Read(XDP); err != nil || len(n.LinkByName("e0").XDP) != 0 {
			t.Errorf("%s detached: %+v, %v", c.name, n.LinkByName("e0").XDP, err)
		}
	}
	for _, c := range []struct {
		name, hook string
		at         ebpf.AttachType
		own        bool
	}{{"kstate_own_in", "tcx-ingress", ebpf.AttachTCXIngress, true}, {"foreign_out", "tcx-egress", ebpf.AttachTCXEgress, false}} {
		l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: program(t, c.name, ebpf.SchedCLS, c.at, -1), Attach: c.at})
		if errors.Is(err, ebpf.ErrNotSupported) {
			t.Skip("this kernel refuses a tcx link, which is of Linux 6.6")
		}
		if err != nil {
			t.Fatal(err)
		}
		n, err := r.Read(XDP)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.LinkByName("e0").TCX; len(got) != 1 || got[0].Name != c.name || got[0].Hook != c.hook || got[0].Own != c.own {
			t.Errorf("%s: %+v", c.name, got)
		}
		if got := n.LinkByName("e1").TCX; len(got) != 0 {
			t.Errorf("another device: %+v", got)
		}
		l.Close()
	}
}

// TestNetfilterProgram: a BPF program hooked into netfilter is in no table, and must be seen all the same.
func TestNetfilterProgram(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{})
	if errors.Is(features.HaveProgramType(ebpf.Netfilter), ebpf.ErrNotSupported) {
		t.Skip("this kernel refuses a BPF netfilter program, which is of Linux 6.4")
	}
	p := program(t, "kstate_nf", ebpf.Netfilter, ebpf.AttachNetfilter, 1)
	l, err := link.AttachNetfilter(link.NetfilterOptions{Program: p, ProtocolFamily: link.NetfilterProtoIPv4, Hook: link.NetfilterInetForward, Priority: -7})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n, err := r.Read(All)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, h := range n.Netfilter {
		found = found || h.Kind == model.NFBPF && h.Family == model.IP4 && h.Hook == "forward" && h.Priority == -7
	}
	if !found {
		t.Errorf("hooks: %+v", n.Netfilter)
	}
	derived, err := r.deriveHooks(nil, false)
	if err != nil || len(derived) != 1 || derived[0].Kind != model.NFBPF || derived[0].Hook != "forward" || derived[0].Priority != -7 {
		t.Errorf("derived: %+v, %v", derived, err)
	}
}

// TestDerivedTracking: where hooks can be neither listed nor walked, connection tracking must follow from any rule that
// turns it on, in any chain.
func TestDerivedTracking(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{})
	for _, c := range []struct {
		script string
		want   map[model.Family]bool
	}{
		{"nft add table ip t; nft add chain ip t c; nft add rule ip t c ip saddr 192.0.2.1 counter log limit rate 5/second drop", nil},
		{"nft add rule ip t c ct state new drop", map[model.Family]bool{model.IP4: true}},
		{"nft flush ruleset; nft add table inet t; nft add chain inet t c; nft add rule inet t c ct mark 1 drop", map[model.Family]bool{model.IP4: true, model.IP6: true}},
		{"nft flush ruleset; nft 'add table ip6 t; add chain ip6 t c { type nat hook prerouting priority dstnat; }'", map[model.Family]bool{model.IP6: true}},
		{"nft flush ruleset; iptables-legacy -A INPUT -p tcp -m tcp --dport 22 -m comment --comment x -j ACCEPT", nil},
		{"ip6tables-legacy -A INPUT -m state --state ESTABLISHED -j ACCEPT", map[model.Family]bool{model.IP6: true}},
		{"iptables-legacy -t raw -A PREROUTING -j CT --notrack", map[model.Family]bool{model.IP4: true, model.IP6: true}},
	} {
		ns.run(t, c.script)
		nft, err := r.readNFT()
		if err != nil {
			t.Fatal(err)
		}
		tracked := maps.Clone(nft.tracked)
		legacy, _ := r.readLegacy()
		for _, table := range legacy {
			if table.tracks {
				tracked[table.family] = true
			}
		}
		if len(tracked) != len(c.want) || tracked[model.IP4] != c.want[model.IP4] || tracked[model.IP6] != c.want[model.IP6] {
			t.Errorf("%s: tracked %v, want %v", c.script, tracked, c.want)
		}
		hooks, err := r.deriveHooks(tracked, false)
		if err != nil || len(hooks) != 2*len(c.want) {
			t.Errorf("%s: derived %+v, %v", c.script, hooks, err)
		}
	}
}

// TestAFXDP binds an AF_XDP socket as a capture program does.
func TestAFXDP(t *testing.T) {
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{})
	n, err := r.Read(All)
	if err != nil {
		t.Fatal(err)
	}
	index := n.LinkByName("e0").Index
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this kernel gives no AF_XDP socket (Linux 4.18, CONFIG_XDP_SOCKETS): %v", err)
	}
	defer unix.Close(fd)
	if n, err = r.Read(Sockets); err != nil || len(n.Sockets.XDP) != 0 {
		t.Errorf("an unbound socket: %v, %v", n.Sockets.XDP, err)
	}
	if len(n.Faults) > 0 {
		// A kernel without xdp_diag cannot say which device it is; that there is a socket it says all the same.
		if n.Faults[0].Part != "AF_XDP sockets (xdp_diag)" {
			t.Errorf("faults: %v", n.Faults)
		}
		return
	}
	const frames, size = 64, 4096
	area, err := unix.Mmap(-1, 0, frames*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(area)
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&area[0]))), Len: frames * size, Size: size}
	if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG, uintptr(unsafe.Pointer(&reg)), unsafe.Sizeof(reg), 0); errno != 0 {
		t.Fatal(errno)
	}
	for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING} {
		if err := unix.SetsockoptInt(fd, unix.SOL_XDP, ring, frames); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(index)}); err != nil {
		t.Fatal(err)
	}
	if n, err = r.Read(Sockets); err != nil || len(n.Sockets.XDP) != 1 || n.Sockets.XDP[0] != index || len(n.Faults) > 0 {
		t.Errorf("a bound socket: %v, %v, %v", n.Sockets.XDP, err, n.Faults)
	}
}
