// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// Bits of netdev genetlink's xdp-features (linux/netdev.h, 6.3).
const (
	xdpBasic     = 1 << 0
	xdpRedirect  = 1 << 1
	xdpNDOXmit   = 1 << 2
	xdpReceiveSG = 1 << 5
	xdpNDOXmitSG = 1 << 6
	xdpReceive   = xdpBasic | xdpRedirect
)

// xdpDrivers receive, redirect and transmit XDP frames natively in Linux 6.1; the list is used only where the kernel does
// not tell features itself.
var xdpDrivers = map[string]bool{
	"bnxt_en": true, "ena": true, "fsl_dpaa2_eth": true, "fsl_enetc": true, "i40e": true, "ice": true, "igb": true,
	"igc": true, "ixgbe": true, "mlx5_core": true, "mvneta": true, "mvpp2": true, "qede": true, "sfc": true, "virtio_net": true,
}

// lateTargets announce that they transmit XDP frames only once a program is loaded on them.
var lateTargets = map[string]bool{
	"bnxt_en": true, "ena": true, "gve": true, "i40e": true, "ice": true, "mana": true, "mvneta": true, "virtio_net": true,
}

// oneBuffer is the longest MTU that fits a page of 4 KiB with what XDP and the kernel need before and behind a frame: 256 bytes, 320, an Ethernet header and two tags.
const oneBuffer = 4096 - 256 - 320 - 14 - 8

// severalBuffers says whether a card gives XDP frames that lie in several buffers. One that does not loses those longer than a buffer, and not every driver refuses such an MTU. virtio_net
// can since 6.3, but does not say so.
func severalBuffers(l *model.Link) bool {
	f := l.XDPFeatures
	return f != nil && (*f&xdpReceiveSG != 0 || l.Driver == "virtio_net")
}

// LosesFrames says whether a card may lose long frames while an XDP program is attached to it, be it one that passes everything.
func LosesFrames(l *model.Link) bool {
	return l.Kind == kindNIC && l.MTU > oneBuffer && !severalBuffers(l)
}

// ability says whether XDP frames can be sent to a device.
type ability int

const (
	cannot ability = iota
	onLoad         // once an XDP program is loaded on it
	can
)

// transmits says whether a port device can be sent XDP frames. Cards need queues that they set up with a program of their
// own, and drop frames silently before; a veth needs its peer to poll (GRO or a program there), which only its features tell.
func (b *builder) transmits(l *model.Link) ability {
	f := l.XDPFeatures
	if l.Kind == kindVeth {
		if f == nil && b.policy.Hook == string(XDP) || f != nil && *f&xdpNDOXmit != 0 {
			return can
		}
		return cannot
	}
	if l.Kind != kindNIC && l.Kind != kindBond {
		return cannot
	}
	able := f == nil && b.listed(l) || f != nil && *f&xdpNDOXmit != 0
	switch {
	case able && nativeXDP(l):
		return can
	case able, f != nil && *f&xdpReceive == xdpReceive && lateTargets[l.Driver] && !nativeXDP(l):
		return onLoad
	}
	return cannot
}

// listed is the judgement for kernels that do not tell features.
func (b *builder) listed(l *model.Link) bool {
	if l.Kind != kindBond {
		return xdpDrivers[l.Driver]
	}
	if !b.policy.Kernel.BondXDP || l.Bond == nil || len(l.Bond.Slaves) == 0 {
		return false
	}
	switch l.Bond.Mode {
	case bondRoundRobin, bondActiveBackup, bondXOR, bondLACP:
	default:
		return false
	}
	for _, s := range b.bondSlaves(l) {
		if forced := s.Kind == kindVeth && b.policy.Hook == string(XDP); !xdpDrivers[s.Driver] && !forced {
			return false
		}
	}
	return true
}

func nativeXDP(l *model.Link) bool {
	for _, p := range l.XDP {
		if p.Hook == "xdp" {
			return true
		}
	}
	return false
}

// BOND_MODE_* in which bonds run XDP programs.
const (
	bondRoundRobin   = 0
	bondActiveBackup = 1
	bondXOR          = 2
	bondLACP         = 4
)

// receives gives the reasons why a port device cannot run our XDP program.
func (b *builder) receives(l *model.Link) []Why {
	var why []Why
	switch f := l.XDPFeatures; {
	case l.Kind == kindTap:
		why = append(why, because(reason.LinkXDPUnsupported, "%s is a tap", l.Name))
	case l.Kind == kindVXLAN:
		why = append(why, because(reason.LinkXDPUnsupported, "%s is a vxlan", l.Name))
	case f == nil && l.Kind != kindVeth && !b.listed(l):
		why = append(why, because(reason.LinkXDPUnsupported, "%s", driverName(l)))
	case f != nil && *f&xdpReceive != xdpReceive:
		why = append(why, because(reason.LinkXDPUnsupported, "%s: features %#x", driverName(l), *f))
	}
	if l.Kind == kindBond {
		why = join(why, b.bondMembers(l))
	}
	return join(why, b.xdpOnly(l))
}

// xdpOnly gives the reasons on one device, port or slave, that concern XDP and not tc.
func (b *builder) xdpOnly(l *model.Link) []Why {
	var why []Why
	for _, p := range l.XDP {
		if !p.Own {
			why = append(why, because(reason.ForeignXDP, "%s: program %d %s (%s)%s", l.Name, p.ID, p.Name, p.Hook, leftBy(p.Name)))
		}
	}
	if b.afxdp[l.Index] {
		why = append(why, because(reason.AFXDP, "%s", l.Name))
	}
	if LosesFrames(l) {
		why = append(why, because(reason.LinkXDPUnsupported, "%s: MTU %d, and its driver gives XDP frames of one buffer", l.Name, l.MTU))
	}
	if l.Kind == kindVeth && !l.PeerNS { // which clears them only between namespaces (skb_scrub_packet())
		why = append(why, because(reason.LinkAttribute, "%s: frames of its peer in this namespace keep their marks", l.Name))
	}
	// A veth keeps tags in the skb whatever its offload flags say; socket-born frames are told apart in the data path.
	if l.VLANStripping && l.Kind != kindVeth {
		why = append(why, because(reason.LinkVLANStripping, "%s: ethtool -K %s rxvlan off", l.Name, l.Name))
	}
	return join(why, b.tapsOn(l, true))
}

// leftBy tells a stub of shunt that this daemon has no pin of from a stranger's program.
func leftBy(program string) string {
	if !strings.HasPrefix(program, "shunt_stub_xdp") {
		return ""
	}
	return ", left by a shunt of another runtime directory; `shunt stop --detach` with that --runtime-dir removes it where no daemon runs"
}

// bondMembers gives the reasons in a bond's slaves: the program runs on each of them, in place of what hangs there.
func (b *builder) bondMembers(bond *model.Link) []Why {
	if bond.Bond == nil {
		return []Why{because(reason.LinkAttribute, "%s: mode not known", bond.Name)}
	}
	var why []Why
	// Linux drops what an inactive slave receives; a program on the bond runs for every slave.
	if m := bond.Bond.Mode; (m == bondActiveBackup || m == bondLACP) && !slices.Equal(bond.Bond.Active, bond.Bond.Slaves) {
		why = append(why, because(reason.LinkXDPUnsupported, "%s: slaves %v active of %v", bond.Name, bond.Bond.Active, bond.Bond.Slaves))
	}
	slaves := b.bondSlaves(bond)
	if len(slaves) == 0 || len(slaves) != len(bond.Bond.Slaves) {
		why = append(why, because(reason.LinkXDPUnsupported, "%s: %d of %d slaves known", bond.Name, len(slaves), len(bond.Bond.Slaves)))
	}
	for _, s := range slaves {
		why = join(why, b.shape(s), b.stacked(s), b.ingressHooks(s), b.xdpOnly(s))
	}
	return why
}

// wire says whether frames reach a device from a wire, so that auto takes XDP there: cards, and bonds of cards.
func (b *builder) wire(l *model.Link) bool {
	if l.Kind == kindBond {
		slaves := b.bondSlaves(l)
		for _, s := range slaves {
			if s.Kind != kindNIC {
				return false
			}
		}
		return len(slaves) > 0
	}
	return l.Kind == kindNIC || l.Kind == kindVeth && matches(b.policy.Wires, l.Name)
}

// hookChoice gives the reason why the user's or auto's choice keeps a hook from a device.
func (b *builder) hookChoice(l *model.Link, hook Hook) []Why {
	switch {
	case b.policy.Hook == string(XDP) && hook == TC, b.policy.Hook == string(TC) && hook == XDP:
		return []Why{because(reason.HookChoice, "--hook %s", b.policy.Hook)}
	case b.policy.Hook != string(XDP) && hook == XDP && !b.wire(l):
		return []Why{because(reason.HookChoice, "packets of %s are born in a stack, not on a wire", l.Name)}
	}
	return nil
}

// attachesTC gives the reason against tc everywhere.
func (b *builder) attachesTC() []Why {
	if b.policy.Kernel.TC {
		return nil
	}
	return []Why{because(reason.AttachFailed, "this kernel attaches no tc programs")}
}

// failed gives the reason left by an attempt to attach.
func (b *builder) failed(l *model.Link, hook Hook) []Why {
	message, tried := b.policy.Failed[Attachment{l.Index, hook}]
	if !tried {
		return nil
	}
	return []Why{because(reason.AttachFailed, "%s at %s: %s", l.Name, hook, message)}
}

func driverName(l *model.Link) string {
	return strings.TrimSuffix(l.Name+" ("+l.Driver, " (") + map[bool]string{true: ")", false: ""}[l.Driver != ""]
}
