// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/netip"
	"time"
)

// Schema is the version of the answers' meaning; fields are added without changing it.
const Schema = 1

// Status is the answer to VerbStatus, and what `shunt status --json` prints.
type Status struct {
	Version    string      `json:"version"`
	Schema     int         `json:"schema"`
	Ready      bool        `json:"ready"`             // the first round is done
	Failing    string      `json:"failing,omitempty"` // why the last round failed: everything goes to Linux until one succeeds
	Generation uint64      `json:"generation"`        // rounds so far; a round reads, decides and applies
	PID        int         `json:"pid"`
	Netns      string      `json:"netns"` // "" is the namespace that the daemon was started in
	Paused     bool        `json:"paused"`
	PausedIf   []string    `json:"paused_interfaces"` // by `shunt pause IFACE`, also those that are gone
	Hook       string      `json:"hook"`              // policy: auto, xdp or tc
	Interfaces []Interface `json:"interfaces"`
	Rules      []Reason    `json:"rules"` // rules that leave packets to Linux
	Sets       []SlowSet   `json:"sets"`  // sets that rules cannot ask in the fast path
	Sync       Sync        `json:"sync"`
	Namespaces []Namespace `json:"namespaces"`       // all that the daemon serves
	Faults     []string    `json:"faults,omitempty"` // what could not be read
	Features   any         `json:"features,omitempty"`
	NoGeneric  string      `json:"no_generic,omitempty"` // why there are no generic programs, so that changes wait for their own to be loaded
}

// SlowSet is a set whose rules leave the packets that reach them to Linux.
type SlowSet struct {
	Family string `json:"family"`          // "ip", "ip6", "inet" …
	Table  string `json:"table,omitempty"` // of nf_tables; empty for a set of ipset
	Name   string `json:"name"`
	Why    string `json:"why"`
}

// Interface is one network device.
type Interface struct {
	Name    string             `json:"name"`
	Ifindex int                `json:"ifindex"`
	Kind    string             `json:"kind"`
	Up      bool               `json:"up"`
	Hook    string             `json:"hook"`    // "xdp", "tc", "xdp+tc", or "none"
	Mode    string             `json:"mode"`    // "native" (XDP), "tcx" or "clsact" (TC); joined by "+"; "" without a hook
	Tier    string             `json:"tier"`    // "specialised" or "generic", of the program that runs, or "awaited"; joined by "+"; "" without one
	State   string             `json:"state"`   // StateFast …
	IP4     string             `json:"ip4"`     // the same for one family
	IP6     string             `json:"ip6"`     //
	Reasons []Reason           `json:"reasons"` // why it, or a family of it, or a hook, is not fast, why a card is at TC and not at XDP, or why single packets are not fast; empty when all is
	Egress  []Reason           `json:"egress"`  // why packets that come by other interfaces cannot leave by it from a hook; empty where they can from both
	Graph   []string           `json:"graph"`   // kinds of the nodes that packets pass
	Packets Packets            `json:"packets"`
	Hooks   map[string]Packets `json:"hooks"` // the same by hook
	Inputs  []Input            `json:"inputs,omitempty"`
	Bridge  *Bridge            `json:"bridge,omitempty"` // for a port of a bridge
}

// The states of an interface or family.
const (
	StateFast    = "fast"    // all that Linux forwards has a fast path; single rules may still leave packets to Linux, see Reason.Part
	StatePartial = "partial" // one family, or some logical interface on it
	StateSlow    = "slow"    // everything goes to Linux
	StateOff     = "off"     // Linux is not set to forward there, so there is nothing to make fast
)

// Reason says why something is not fast.
type Reason struct {
	Reason string `json:"reason"`           // a name from docs/reasons.md
	Detail string `json:"detail,omitempty"` // the object that it speaks of
	Family string `json:"family,omitempty"` // "ip4", "ip6"; "" for both
	Hook   string `json:"hook,omitempty"`   // "xdp", "tc" where it speaks of one hook
	Input  string `json:"input,omitempty"`  // the logical interface, where that is not the device
	Part   bool   `json:"part,omitempty"`   // it concerns the packets alone that come to a rule or chain; others of the family are fast
}

// Bridge says what becomes of frames between a bridge's ports that come by an interface.
type Bridge struct {
	Name  string `json:"name"`
	State string `json:"state"` // StateFast or StateSlow
}

// Input is a logical interface as packets reach it through a device.
type Input struct {
	Name    string `json:"name"`
	Ifindex int    `json:"ifindex"`
	VLANs   []int  `json:"vlans"`
	IP4     string `json:"ip4"`
	IP6     string `json:"ip6"`
}

// Packets are a device's packets since the program was attached.
type Packets struct {
	Fast    uint64            `json:"fast"`
	Slow    map[string]uint64 `json:"slow"` // to Linux, by reason
	Dropped map[string]uint64 `json:"dropped"`
	Bytes   uint64            `json:"fast_bytes"`
}

// Sync says how the daemon keeps up with Linux.
type Sync struct {
	Events       uint64     `json:"events"`
	Resyncs      uint64     `json:"resyncs"`
	Rounds       uint64     `json:"rounds"`
	Failures     uint64     `json:"failures"`       // rounds that failed
	LastChangeMS float64    `json:"last_change_ms"` // from the first event of the last change to its effect
	LastChange   *time.Time `json:"last_change,omitempty"`
	WatchdogMS   int64      `json:"watchdog_ms"`
	Awaited      int        `json:"awaited"` // hooks whose first program is being made, where everything goes to Linux until then
}

// Namespace is one network namespace that the daemon serves.
type Namespace struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	Error string `json:"error,omitempty"`
}

// Event is one round that changed something, or failed.
type Event struct {
	When       time.Time `json:"when"`
	Netns      string    `json:"netns"`
	Generation uint64    `json:"generation"`
	Parts      []string  `json:"parts"`   // what was read anew
	TookMS     float64   `json:"took_ms"` // from the first event to the effect
	Changes    []string  `json:"changes"` // what is different, one sentence each
	Failures   []string  `json:"failures,omitempty"`
	Error      string    `json:"error,omitempty"` // the round failed: everything goes to Linux until one succeeds
}

// ReasonRow is one row of the closed list.
type ReasonRow struct {
	Reason  string            `json:"reason"`
	Class   string            `json:"class"`
	Doc     string            `json:"doc"`
	Packets uint64            `json:"packets"`
	Bytes   uint64            `json:"bytes"`
	By      map[string]uint64 `json:"by,omitempty"` // "eth0 xdp" → packets
}

// ProgramRow is one loaded program.
type ProgramRow struct {
	Interface    string `json:"interface"`
	Ifindex      int    `json:"ifindex"`
	Hook         string `json:"hook"`
	Tier         string `json:"tier"` // "specialised" for the configuration, or the "generic" one that serves every interface
	ID           uint32 `json:"id"`   // 0 while only the stub is attached
	Name         string `json:"name"`
	Tag          string `json:"tag"`
	Instructions int    `json:"instructions"` // after verification
	Verified     uint32 `json:"verified"`     // instructions that the verifier walked
	JITed        int    `json:"jited_bytes"`
	Memory       uint64 `json:"memory_bytes"`
}

// NeighbourRow is a next hop that the fast path used lately.
type NeighbourRow struct {
	Interface string `json:"interface"`
	Address   string `json:"address"`
	State     string `json:"state"`
	MAC       string `json:"mac"`
}

// Explanation is the answer to VerbExplain.
type Explanation struct {
	Interface string            `json:"interface"`
	Packet    string            `json:"packet"`            // the frame in words
	Assumed   string            `json:"assumed,omitempty"` // at a port of a bridge: where the addresses of the frame are from that were not given
	Frame     string            `json:"frame"`             // hex, as it came in
	Steps     []ExplanationStep `json:"steps"`             // one for each hook that the packet met
	Fast      bool              `json:"fast"`
	Reason    string            `json:"reason"` // of the last step; "fast" when forwarded
	Egress    string            `json:"egress,omitempty"`
	Route     string            `json:"route,omitempty"`   // where Linux would send it, of a packet that went to Linux for what its route says
	Output    string            `json:"output,omitempty"`  // hex, as it leaves
	Changes   []string          `json:"changes,omitempty"` // what was rewritten
	Rules     *RuleWalk         `json:"rules,omitempty"`   // the packet's way through Linux's rules; absent where no rule is met, or it does not come to them
}

// RuleWalk is what Linux's rules say of one packet, followed step by step and not by the loaded program.
type RuleWalk struct {
	Outcome  string      `json:"outcome"`           // "accept", "drop", "slow": only Linux can tell, or "unknown": too many rules to be followed
	By       string      `json:"by,omitempty"`      // the rule or policy that dropped it or that only Linux can evaluate
	Why      string      `json:"why,omitempty"`     // for "slow" and "unknown"
	Assumed  string      `json:"assumed,omitempty"` // what is not known of the packet and was taken for granted
	Met      []RuleMatch `json:"met"`               // rules that matched, and policies that were asked, in order
	Disagree string      `json:"disagree,omitempty"`
}

// RuleMatch is one of them.
type RuleMatch struct {
	Hook string `json:"hook"`
	Rule string `json:"rule"` // table, chain, number
	Text string `json:"text,omitempty"`
}

// ExplanationStep is what happened at one hook.
type ExplanationStep struct {
	Hook     string   `json:"hook"`     // "xdp", "tc", or "none" where no program is attached and the graph answers
	Loaded   bool     `json:"loaded"`   // answered by the loaded program
	Node     string   `json:"node"`     // that decided
	Reason   string   `json:"reason"`   //
	Doc      string   `json:"doc"`      // the reason in a sentence
	Because  []Reason `json:"because"`  // what in Linux's configuration is behind the reason
	Passed   []string `json:"passed"`   // nodes that the packet passed before
	Egress   string   `json:"egress"`   // logical interface
	Duration int64    `json:"duration"` // ns, one cold run
}

// Rules is the answer to VerbShow of rules: what Linux's packet filters hold, as shunt reads it.
type Rules struct {
	Tables []RuleTable `json:"tables"`
	IPSets []RuleSet   `json:"ipsets"`
	Faults []string    `json:"faults,omitempty"` // what could not be read
}

// RuleTable is a table of nf_tables, iptables or ip6tables.
type RuleTable struct {
	Dialect  string        `json:"dialect"` // "nft", "legacy"
	Family   string        `json:"family"`  // "ip", "ip6", "inet", "netdev", "bridge", "arp"
	Name     string        `json:"name"`
	Dormant  bool          `json:"dormant,omitempty"`
	Chains   []RuleChain   `json:"chains"`
	Sets     []RuleSet     `json:"sets"`               // of nf_tables
	Counters []RuleCounter `json:"counters,omitempty"` // of nf_tables: those with names, which rules share
}

// RuleCounter is a counter that has a name.
type RuleCounter struct {
	Name    string  `json:"name"`
	Packets *uint64 `json:"packets"` // of Linux and the fast path together
	Bytes   *uint64 `json:"bytes"`
	Fast    *Fast   `json:"fast,omitempty"`
}

// RuleChain is a chain. Hook and what follows belong to base chains.
type RuleChain struct {
	Name     string   `json:"name"`
	Handle   uint64   `json:"handle,omitempty"`
	Hook     string   `json:"hook,omitempty"`
	Priority int32    `json:"priority"`
	Type     string   `json:"type,omitempty"`
	Policy   string   `json:"policy,omitempty"` // "accept", "drop"
	Devices  []string `json:"devices,omitempty"`
	Packets  *uint64  `json:"packets,omitempty"` // that met the policy, where Linux counts them
	Bytes    *uint64  `json:"bytes,omitempty"`
	Fast     *Fast    `json:"fast,omitempty"`
	Trouble  []string `json:"trouble,omitempty"` // what of the chain is not understood
	Rules    []Rule   `json:"rules"`
}

// Rule is one rule.
type Rule struct {
	Number     int           `json:"number"` // place in the chain, from 1
	Handle     uint64        `json:"handle,omitempty"`
	Text       string        `json:"text"`
	Packets    *uint64       `json:"packets,omitempty"` // of Linux and the fast path together, where the rule has a counter
	Bytes      *uint64       `json:"bytes,omitempty"`
	Fast       *Fast         `json:"fast,omitempty"`
	Path       string        `json:"path,omitempty"` // for forwarded packets: "fast", "linux" (it leaves them to Linux), "partial" (some of them); "" when it is none of their rules, or their family is slow
	Understood bool          `json:"understood"`     // shunt knows what each part of the rule means
	Trouble    []RuleTrouble `json:"trouble,omitempty"`
}

// Fast is the fast path's part of a counter; the rest is Linux's.
type Fast struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// RuleTrouble is a part of a rule that leaves the packets that reach it to Linux.
type RuleTrouble struct {
	Understood bool   `json:"understood"` // what it does is known, but only Linux can do it
	Name       string `json:"name"`
	Text       string `json:"text"`
}

// RuleSet is a set or map that rules look packets up in.
type RuleSet struct {
	Name       string `json:"name"`
	Type       string `json:"type,omitempty"`
	Elements   int    `json:"elements"`
	Trouble    string `json:"trouble,omitempty"` // why packets that are looked up in it go to Linux, or some of them
	Understood bool   `json:"understood"`        // shunt knows what all of it means
}

// Flows are the heaviest flows since this list began, as a sample of the packets shows them. Lists begin when someone asks, and anew each minute.
type Flows struct {
	Each    int       `json:"one_of"`  // packets to one that was looked at, on average
	Since   time.Time `json:"since"`   // when this list began
	Packets uint64    `json:"packets"` // of all flows, estimated; frames without IP are not counted
	Flows   []FlowRow `json:"flows"`   // the heaviest first
}

// FlowRow is one flow. Ports are 0 where there are none.
type FlowRow struct {
	Protocol string         `json:"protocol"`
	From     netip.AddrPort `json:"from"`
	To       netip.AddrPort `json:"to"`
	Packets  uint64         `json:"packets"` // estimated
}
