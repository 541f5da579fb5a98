// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/model"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/reason"
	"github.com/shuntnet/shunt/internal/rules"
	"github.com/shuntnet/shunt/internal/rules/image"
)

// Filter is what the rules at a family's routed hooks do to forwarded packets, whatever devices they come and go by.
type Filter struct {
	Program *rules.Program `json:"-"`
	// Pre and Post: entries before and behind the route, of which so many leave packets to Linux; no entries where the stage does nothing.
	Pre  Stage `json:"pre"`
	Post Stage `json:"post"`
	Slow []Why `json:"slow,omitempty"` // the rules that leave packets to Linux, each with its part of the traffic
	// Images are what the data path looks packets up in, and Places where the counters that they move live; where it asks rules at all.
	Images  [image.Stages]*image.Image `json:"-"`
	Places  []ruleset.CounterPlace     `json:"-"`
	Problem string                     `json:"problem,omitempty"` // why there are no images
	// Front leaves packets to Linux before all images: those that rules concern which changed since the images were made (apart.go).
	Front *image.Image `json:"-"`
	// Over decides over those packets by itself, where it can be told what they meet; there is no Front then.
	Over *Over `json:"-"`

	shared    bool   // there are entries at hooks that belong to no device
	mark      bool   // a rule changes the mark
	routeMark bool   // and one before the route does
	closed    bool   // no packet comes to its end
	unbridged string // what in the rules images do not have as bridged packets meet it; empty: nothing
	left      []rules.SlowTraffic
	atIngress []Why // those of Slow that only packets meet which come by a device with chains at its ingress
	at        map[string]bool
}

// Over is what is asked behind the route before the images: all that packets meet there that changed rules may concern (rules.Over). Its counters have numbers of their own.
type Over struct {
	Image  *image.Image
	Places []ruleset.CounterPlace
}

// Stage is the size of a stage of a Filter.
type Stage struct {
	Entries int `json:"entries"`
	Slow    int `json:"slow"`
	Dims    int `json:"dims,omitempty"` // fields that a packet is looked up by
}

func newFilter(rs *ruleset.Ruleset, key filterKey) *Filter {
	f := &Filter{Program: rules.Flatten(key.met(rs), key.class()), at: map[string]bool{}}
	for i := range f.Program.Lists {
		for j := range f.Program.Lists[i] {
			f.entry(&f.Program.Lists[i][j])
			if f.unbridged == "" {
				f.unbridged = unbridged(&f.Program.Lists[i][j])
			}
		}
	}
	f.closed = closed(f.Program.Lists[0])
	return f
}

// closed says whether every packet meets a rule that leaves it to Linux, so that asking the rules is of no use to any.
func closed(entries []rules.Entry) bool {
	for i := range entries {
		switch e := &entries[i]; {
		case e.Then == rules.LeaveSlow && len(e.When) == 0:
			return true
		case e.Then != rules.Next && e.Then != rules.LeaveSlow:
			return false
		}
	}
	return false
}

// met is a rule set without the chains that a filter is not about: those of devices, but for those at the ingress or egress of the filter's, unless they do nothing.
func (k filterKey) met(rs *ruleset.Ruleset) *ruleset.Ruleset {
	out := *rs
	out.Tables = make([]ruleset.Table, len(rs.Tables))
	asked := map[ruleset.Hook][]string{ruleset.Ingress: strings.Fields(k.ingress), ruleset.Egress: strings.Fields(k.egress)}
	for i, t := range rs.Tables {
		t.Chains = slices.Clone(t.Chains)
		for j := range t.Chains {
			c := &t.Chains[j]
			if b := c.Base; b != nil && ofDevices(b.Hook) {
				own := *b
				own.Devices = slices.DeleteFunc(slices.Clone(asked[b.Hook]), func(d string) bool { return !b.On(d) })
				if c.Base = &own; len(own.Devices) == 0 || len(c.Rules) == 0 && b.Policy == ruleset.Accept && b.Counter == ruleset.NoCounter {
					c.Base = nil
				}
			}
		}
		out.Tables[i] = t
	}
	return &out
}

// ofDevices says whether chains at a hook belong to devices.
func ofDevices(h ruleset.Hook) bool { return h == ruleset.Ingress || h == ruleset.Egress }

// entry counts an entry in, unless it does nothing but count a policy: chains without rules cost nothing.
func (f *Filter) entry(e *rules.Entry) {
	if e.By.Rule == nil && e.Then == rules.Next {
		return
	}
	f.at[e.Hook().String()] = true
	f.shared = f.shared || !ofDevices(e.Hook())
	if slices.ContainsFunc(e.Do, func(s ruleset.Step) bool { c, ok := s.(ruleset.SetField); return ok && c.Field == ruleset.Mark }) {
		f.mark = true
		f.routeMark = f.routeMark || e.BeforeRoute()
	}
	if slices.ContainsFunc(e.Do, func(s ruleset.Step) bool { c, ok := s.(ruleset.SetField); return ok && c.Field == ruleset.Priority }) {
		f.mark = true // whoever asks for marks on the way out may ask for priorities
	}
	stage := &f.Post
	if e.BeforeRoute() {
		stage = &f.Pre
	}
	stage.Entries++
	if e.Then == rules.LeaveSlow {
		stage.Slow++
	}
}

// manySlow is how many slow rules are named one by one.
const manySlow = 10

// name lists the slow rules, and those that images cannot express.
func (f *Filter) name(key filterKey) {
	slow := slices.Concat(f.Program.Slow(), f.left)
	for i, s := range slow {
		code := key.reasonAt(s.Hook)
		if i == manySlow {
			f.Slow = append(f.Slow, because(code, "and %d rules more", len(slow)-manySlow))
			return
		}
		why := because(code, "%s", describeSlow(s, f.Program.Rules()))
		if f.Slow = append(f.Slow, why); s.Hook == ruleset.Ingress {
			f.atIngress = append(f.atIngress, why)
		}
	}
}

// reasonAt is the reason in a rule at a hook.
func (k filterKey) reasonAt(h ruleset.Hook) reason.Code {
	switch {
	case k.bridged:
		return reason.NetfilterBridge
	case ofDevices(h):
		return reason.NetfilterNetdev
	}
	return routedHooks[k.family][h.String()]
}

// describeSlow says which part of the traffic a rule leaves to Linux, which rule it is, and why.
func describeSlow(s rules.SlowTraffic, rs *ruleset.Ruleset) string {
	var region []string
	for _, c := range s.Region {
		region = append(region, c.Text(rs))
	}
	what := strings.Join(region, ", ")
	switch {
	case s.Called:
		what = strings.TrimSpace("what is led to it, " + what)
	case what == "":
		what = "all packets"
	}
	return fmt.Sprintf("%s: %s: %s", strings.TrimSuffix(what, ","), s.By, s.Why)
}

// filtered says whether a hook is a chain whose rules were read and are understood as a whole, so that they speak for it.
func filtered(rs *ruleset.Ruleset, h model.NFHook) bool {
	if rs == nil || len(h.Extra) > 0 {
		return false
	}
	dialect := ruleset.NFT
	if h.Kind == model.Legacy {
		dialect = ruleset.Legacy
	} else if h.Kind != model.NFTables {
		return false
	}
	own := ruleset.IP4
	switch h.Family {
	case model.IP6:
		own = ruleset.IP6
	case model.Netdev:
		own = ruleset.Netdev
	case model.BridgeFamily:
		own = ruleset.Bridge
	}
	for i := range rs.Tables {
		t := &rs.Tables[i]
		if t.Name != h.Table || t.Dialect != dialect || t.Dormant || t.Family != own && (t.Family != ruleset.Inet || own == ruleset.Bridge) {
			continue
		}
		if c := t.Chain(h.Chain); c != nil && c.Base != nil && c.Base.Hook.String() == h.Hook && int(c.Base.Priority) == h.Priority &&
			(own != ruleset.Netdev || len(c.Base.Unknown) == 0 && c.Base.On(h.Device)) {
			return true
		}
	}
	return false
}

// filterReasons settles what the rules at a family's routed hooks mean for it: reasons against every packet, or a filter of the graph.
func (b *builder) filterReasons(family model.Family, hooks []model.NFHook, policy ruleFacts) (*Filter, []Why) {
	if len(hooks) == 0 {
		return nil, nil
	}
	asked := b.policy.Memo.asked(b.net.Filter)
	localFirst := policy.localFirst && !b.net.Routes.TOS4 || asked.types && b.types6(family, policy)
	if family == model.IP6 && localFirst {
		b.graph.OnLink6 = b.net.Routes.OnLink6
	}
	f := b.policy.Memo.filter(b.net, b.policy.Kernel.Rules, filterKey{family: family, established: b.tracking[family].on, translated: b.tracking[family].nat, sets: b.policy.Kernel.Sets, zones: b.policy.Kernel.Zones, localFirst: localFirst, routeBack: asked.back && b.routeBack(family, policy),
		ingress: strings.Join(slices.Sorted(maps.Keys(b.ingress)), " "), egress: strings.Join(slices.Sorted(maps.Keys(b.egress)), " ")})
	if f.Pre.Entries+f.Post.Entries == 0 {
		return nil, nil
	}
	var why []Why
	if !b.policy.Kernel.Rules {
		for _, h := range hooks {
			if f.at[h.Hook] {
				why = append(why, because(routedHooks[family][h.Hook], "%s", describeHook(h)))
			}
		}
		return f, append(why, f.Slow...)
	}
	if f.closed && len(b.flowtables) == 0 { // connections in a flow table meet no rules, such as the one that put them there
		why = append(why, f.Slow...)
	}
	if f.Problem != "" {
		why = append(why, because(routedHooks[family]["forward"], "%s", f.Problem))
	}
	// The way back is looked up without a mark, and so is the route before Linux 6.10.
	if f.routeMark && (policy.marks && !b.policy.Kernel.FibMark || b.validMark) {
		why = append(why, because(reason.RuleUnknown, "%s: netfilter rules set a mark that routing asks for", family))
	}
	return f, why
}

// routeBack says whether the lookup for programs finds the same route to a sender as rules do that ask for it (fib_lookup(), ip6_route_lookup()), if one of type unicast. Both take
// the tables in the same order only as long as there are the kernel's own rules and no VRF, whatever the mark. That of rules also takes routes of devices without a carrier where
// forwarding is told to ignore them. IPv6: of several routes of a prefix they choose by other things: the lookup of rules takes the first that is not dead, or the hash of the packet's
// own addresses. IPv4: both take the same, and of several next hops rules are content with any (fib_info_nh_uses_dev()); but they ask for the packet's TOS, of which
// kernels take other bits at either place.
func (b *builder) routeBack(family model.Family, policy ruleFacts) bool {
	routes, six := b.net.Routes, family == model.IP6
	other := slices.ContainsFunc(b.net.Links, func(l *model.Link) bool {
		return l.Kind == kindVRF || !six && l.Conf4.IgnoreLinkdown || six && l.Conf6.IgnoreLinkdown
	})
	if six {
		return !policy.custom && !routes.Shared6 && !other && !b.net.Sysctl.All6.IgnoreLinkdown
	}
	return !policy.custom && !routes.TOS4 && !other && !b.net.Sysctl.All4.IgnoreLinkdown
}

// types6 says whether the lookup for programs finds the same route to an address as rules do that ask for its type (ip6_route_output()), as far as that is a unicast one.
// Beside what goes for the route back, theirs prefers routers that are known to be reachable where the host forwards nothing by default.
func (b *builder) types6(family model.Family, policy ruleFacts) bool {
	return family == model.IP6 && b.routeBack(family, policy) && b.net.Sysctl.All6.Forwarding && !b.net.Routes.Odd6
}

// asked is what some rule asks for: whether it can be told matters to no others. What is asked in a way that is not seen here is Linux's.
type asked struct {
	back  bool // the route to the sender
	types bool // types of addresses
	// translated is filled on demand: whether a chain behind the translation asks for what it changes (asksTranslated).
	translated map[behindChain]bool
}

// behindChain is a chain that packets of a family meet at a hook.
type behindChain struct {
	family             model.Family
	hook, table, chain string
}

func askedBy(rs *ruleset.Ruleset) asked {
	out := asked{translated: map[behindChain]bool{}}
	for _, t := range rs.Tables {
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				for _, s := range r.Steps {
					for _, f := range rules.AskedFor(s) {
						out.back = out.back || f == ruleset.RouteBack || f == ruleset.RouteBackBy
						out.types = out.types || f == ruleset.SrcAddrType || f == ruleset.DstAddrType
					}
				}
			}
		}
	}
	return out
}

// asked is what the last rule set asks for, if it is this one.
func (m *Memo) asked(rs *ruleset.Ruleset) asked {
	if rs == nil {
		return asked{}
	}
	if m == nil {
		return askedBy(rs)
	}
	if m.askedOf != rs {
		m.askedOf, m.asks = rs, askedBy(rs)
	}
	return m.asks
}

// marksSet says whether rules set marks, which frames at XDP do not carry.
func (b *builder) marksSet() bool {
	f4, f6 := b.graph.Filter4, b.graph.Filter6
	return f4 != nil && f4.mark || f6 != nil && f6.mark
}

// inVRF gives the reason in rules for packets of a VRF: they pass prerouting twice, and come from the VRF device afterwards.
func (f *Filter) inVRF(family model.Family, vrf *model.Link) []Why {
	if f == nil || vrf == nil || !f.shared {
		return nil
	}
	hook := "forward"
	if f.at["prerouting"] {
		hook = "prerouting"
	}
	return []Why{because(routedHooks[family][hook], "rules in a VRF (%s)", vrf.Name)}
}
