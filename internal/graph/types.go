// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/reason"
)

// Hook is where a program runs.
type Hook string

// The hooks.
const (
	XDP Hook = "xdp"
	TC  Hook = "tc"
)

// Policy is what the user asked of shunt, beside what Linux is configured to do.
type Policy struct {
	Hook     string   // "auto" (also ""), "xdp", "tc"
	Include  []string // globs of interface names; empty means all
	Exclude  []string
	Paused   bool
	Flows    bool     // packets are sampled for the list of the heaviest flows
	Strict   bool     // TCP connections that Linux tracks are left to it, so that none has to be marked liberal
	PausedIf []string // names, not globs
	Wires    []string // globs of veths that auto takes for cards; for tests, where both hooks are to serve one port
	Kernel   Kernel
	// Failed are the hooks where attaching was tried and refused, with the kernel's message; the graph does without them, so
	// that a driver that refuses XDP leaves the interface to tc.
	Failed map[Attachment]string
	// Memo keeps what was worked out of rule sets, for the next graph; nil works it out anew.
	Memo *Memo
}

// Attachment is one hook of one device.
type Attachment struct {
	Index int
	Hook  Hook
}

// Kernel is what probes found that graph decisions depend on.
type Kernel struct {
	XDPFeatures  bool   // netdev genetlink tells what a driver can do (6.3)
	VethSKBCheck bool   // socket-born frames can be told apart at XDP on veth (6.3)
	TC           bool   // tc programs can be attached (tcx or clsact)
	BondXDP      bool   // XDP on a bond master (5.15)
	FibMark      bool   // BPF_FIB_LOOKUP_MARK (6.10)
	Rules        bool   // the data path asks packet filter rules itself
	Conntrack    bool   // programs can look connections up
	NoConntrack  string // why they cannot
	Zones        bool   // in any zone
	NAT          bool   // and know what is noted of their translation
	Flowtable    bool   // and find them in flow tables
	Sets         bool   // programs can ask the kernel's ipsets
	Bridge       bool   // programs can read the tables of bridges
	NoBridge     string // why they cannot
	BridgeVLANs  bool   // and those of their VLANs
}

// Why is a reason with the object that it speaks of.
type Why struct {
	Reason reason.Code `json:"reason"`
	Detail string      `json:"detail,omitempty"` // "table filter chain FORWARD (3 rules)", "rule 100 from all fwmark 0x1"
}

// MAC is an Ethernet address that prints as one.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// MarshalText prints the address in JSON.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Graph is the whole decision for one namespace.
type Graph struct {
	Ports  []*Port   `json:"ports"`           // by ifindex: every device of the namespace, attached or not
	Egress []*Egress `json:"egress"`          // by ifindex: every device that routes can lead to
	Flows  bool      `json:"flows,omitempty"` // packets are sampled for the list of the heaviest flows
	// Special are the destinations for the special-route node, IPv4 first, by address and length; empty when no route needs care.
	Special  []Special `json:"special,omitempty"`
	Notable4 bool      `json:"notable4"` // Special has IPv4 rows
	Notable6 bool      `json:"notable6"`
	OnLink6  uint8     `json:"onlink6,omitempty"` // the longest IPv6 prefix on a link, where that is more than 64 bits and rules ask for types of addresses
	// Filter4 and Filter6 are what the rules do to forwarded packets; nil where they do nothing, or where the family is not fast.
	Filter4 *Filter `json:"filter4,omitempty"`
	Filter6 *Filter `json:"filter6,omitempty"`
	// Frames4 and Frames6 are what chains of family bridge do to frames with IPv4, and IPv6, between the ports of bridges.
	Frames4 *Filter `json:"frames4,omitempty"`
	Frames6 *Filter `json:"frames6,omitempty"`
}

// Port is a device as an attach point.
type Port struct {
	Index  int     `json:"ifindex"`
	Name   string  `json:"name"`
	Kind   string  `json:"kind,omitempty"`   // link kind, "" for a NIC
	Hooks  []Hook  `json:"hooks"`            // hooks to attach at, in the order in which packets meet them; empty: not attached
	Why    []Why   `json:"why,omitempty"`    // why not attached at any hook
	XDP    []Why   `json:"xdp,omitempty"`    // why not attached at XDP
	TC     []Why   `json:"tc,omitempty"`     // why not attached at TC
	Via    int     `json:"via,omitempty"`    // the device whose XDP program meets this device's packets (a VLAN's port, a slave's bond), 0 when none
	Bridge *Member `json:"bridge,omitempty"` // for a port of a bridge: what becomes of frames between its ports
	Inputs []Input `json:"inputs"`           // logical interfaces whose packets arrive here, the untagged one first; at TC only that one, but for ports of bridges that filter by VLAN
}

// Member is a port's part in a bridge, as the way in.
type Member struct {
	Index int    `json:"ifindex"` // of the bridge
	Name  string `json:"name"`
	Path         // of known unicast between ports
	// What br_netfilter does with those that carry IPv4, and IPv6.
	Call4 Call `json:"call4,omitzero"`
	Call6 Call `json:"call6,omitzero"`
	// The bridge filters by VLAN.
	VLANs bool `json:"vlans,omitzero"`
	// There are chains of family bridge, and what carries no IP is left to Linux for them.
	Chains bool `json:"chains,omitzero"`
}

// Carriers names the ports of a bridge that programs are attached to. What enters by the bridge meets those; nothing is attached to the bridge itself.
func (g *Graph) Carriers(bridge int) (names []string) {
	for _, p := range g.Ports {
		if p.Bridge != nil && p.Bridge.Index == bridge && len(p.Hooks) > 0 {
			names = append(names, p.Name)
		}
	}
	return names
}

// Some joins names for people, who want to know what they are and not read hundreds of them.
func Some(names []string) string {
	const shown, most = 3, 9
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

// Has says whether the port is attached at hook.
func (p Port) Has(hook Hook) bool { return slices.Contains(p.Hooks, hook) }

// Input is a logical layer-3 interface as packets reach it through a port.
type Input struct {
	VLANs []model.VLAN `json:"vlans,omitempty"` // tags from outer to inner, empty for the port itself; of a bridge that filters by VLAN, the tag that it hands packets on with
	Index int          `json:"ifindex"`         // ifindex of the logical interface: what routes, rules and rp_filter see
	Name  string       `json:"name"`
	VRF   int          `json:"vrf,omitempty"` // ifindex of the VRF master, 0 when none
	MAC   MAC          `json:"mac"`
	IP4   Path         `json:"ip4"`
	IP6   Path         `json:"ip6"`
}

// Path is one family at one logical interface.
type Path struct {
	Why   []Why  `json:"why,omitempty"`   // why this family goes to Linux; empty when fast
	Nodes []Node `json:"nodes,omitempty"` // when fast: the nodes that a packet passes, in order
	// Except names the rules that send part of the traffic to Linux although the path is fast, and that part; and what keeps translated connections from it.
	Except []Why `json:"except,omitempty"`
}

// Fast says whether packets of this family can be forwarded by the fast path.
func (p Path) Fast() bool { return len(p.Why) == 0 && len(p.Nodes) > 0 }

// Node gives the path's node of a kind; nil when the path does without.
func (p Path) Node(kind string) *Node {
	for i := range p.Nodes {
		if p.Nodes[i].Kind == kind {
			return &p.Nodes[i]
		}
	}
	return nil
}

// Node is one step of the fast path with its parameters.
type Node struct {
	Kind   string            `json:"kind"`
	Params map[string]string `json:"params,omitempty"`
}

// Order is that in which a packet passes nodes (bpf/node/pipeline.h). No path has all of them.
var Order = []string{NodeVLAN, NodeBridge, NodeIP4, NodeIP6, NodeTrack, NodeRulesIn, NodeNAT, NodeLocal, NodeSpecial, NodeFIB, NodeRPFilter, NodeEgress, NodeRulesOut, NodeGuard, NodeRewrite, NodeRedirect}

// The node kinds. One file in bpf/node for each.
const (
	NodeBridge   = "bridge"        // known unicast between ports of a bridge, by its own table
	NodeGuard    = "guard"         // live generation guard and watchdog
	NodeVLAN     = "vlan"          // tag to logical interface; params: tags, how many
	NodeIP4      = "ip4"           // header checks
	NodeIP6      = "ip6"           //
	NodeTrack    = "conntrack"     // the packet's connection must be established and, but for its timeout, no business of Linux
	NodeRulesIn  = "rules-in"      // rules before the route (prerouting); params: entries, slow
	NodeNAT      = "nat"           // what Linux translates of established connections: the destination here, and what is written at the end
	NodeLocal    = "local-source"  // IPv4 source is one of the local or subnet broadcast addresses
	NodeSpecial  = "special-route" // longest prefix match in Graph.Special
	NodeFIB      = "fib"           // bpf_fib_lookup; params: ports (rules need them), ecmp (a multipath route exists: ICMP errors go up)
	NodeRPFilter = "rp-filter"     // params: mode strict, loose or source; iif egress or ingress (whose VRF the way back is looked up in)
	NodeEgress   = "egress"        // target table, neighbour use
	NodeRulesOut = "rules-out"     // rules behind it (forward, postrouting); params: entries, slow
	NodeRewrite  = "rewrite"       // TTL, checksum, MAC; params: pop and push (tags, XDP only), priority (by TOS, TC only)
	NodeRedirect = "redirect"
)

// Egress is a logical interface as the way out.
type Egress struct {
	Index  int          `json:"ifindex"`
	Name   string       `json:"name"`
	Kind   string       `json:"kind,omitempty"`
	Port   int          `json:"port"`              // device that a frame is handed to at XDP; at TC it is the interface itself
	VLANs  []model.VLAN `json:"vlans,omitempty"`   // tags to push, outer first (XDP only; at TC the VLAN device does it)
	MTU    int          `json:"mtu"`               // bytes behind the Ethernet header
	XDPMax int          `json:"xdp_max,omitempty"` // longest IP packet that an XDP frame has room for beside the tags, bytes; 0: any up to MTU
	XDP    []Why        `json:"xdp,omitempty"`     // why it cannot be entered from XDP; empty: it can
	TC     []Why        `json:"tc,omitempty"`      // why it cannot be entered from TC; empty: it can
	Frags  bool         `json:"frags"`             // can send multi-buffer frames from XDP
	Tunnel bool         `json:"tunnel,omitempty"`  // it leads into a tunnel
	Short6 bool         `json:"short6,omitempty"`  // of IPv6 it takes shorter packets than MTU (net.ipv6.conf.IFACE.mtu)
	Onto   bool         `json:"onto,omitempty"`    // a bridge that routes lead to, or a VLAN device on one: from TC its port may be found and entered at once, past its own transmit function
	ByVLAN bool         `json:"by_vlan,omitempty"` // that bridge filters by VLAN
	Bridge *Way         `json:"bridge,omitempty"`  // for a port of a bridge: as the way out of that
}

// Way says whether frames of a bridge can leave by one of its ports.
type Way struct {
	Index int   `json:"ifindex"` // of the bridge
	XDP   []Why `json:"xdp,omitempty"`
	TC    []Why `json:"tc,omitempty"`
	Veth  bool  `json:"-"`              // it leads to the other end of a veth
	Peer  bool  `json:"peer,omitempty"` // from tc frames go on with the other end of the veth, as far as nothing there minds
}

// Special is a destination prefix under which some route has a property that bpf_fib_lookup does not honour. Which route is
// taken is the live lookup's matter, in any table, so a row carries what holds for itself and for every row that covers it:
// the longest match is enough.
type Special struct {
	Prefix netip.Prefix `json:"prefix"`
	MTU    uint32       `json:"mtu,omitempty"` // longer IP packets go to Linux (reason route-mtu); 0: any length
	// Always: every packet goes to Linux for this reason (route-realm, route-ecmp, route-unknown, transparent-socket); reason.Fast: none does.
	Always reason.Code `json:"always,omitempty"`
}
