// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/reason"
)

// stated are reasons in the form of an answer; of says what they are about.
func stated(why []graph.Why, of api.Reason) (out []api.Reason) {
	for _, w := range why {
		of.Reason, of.Detail = w.Reason.String(), w.Detail
		out = append(out, of)
	}
	return out
}

// waysOut are the reasons against leaving by a device, by hook. It is never nil.
func waysOut(s *control.State, index int) []api.Reason {
	out := []api.Reason{}
	all := s.Graph.Egress // in the order of their numbers
	at, found := slices.BinarySearchFunc(all, index, func(e *graph.Egress, index int) int { return e.Index - index })
	if !found {
		return out
	}
	out = append(out, stated(all[at].XDP, api.Reason{Hook: string(graph.XDP)})...)
	return append(out, stated(all[at].TC, api.Reason{Hook: string(graph.TC)})...)
}

// barred goes on where a port has nothing to win, for want of a way out: which others there are, and what is against each of them.
func barred(s *control.State, p *graph.Port, w graph.Why) string {
	const most = 5
	if w.Reason != reason.NothingToWin || !strings.HasPrefix(w.Detail, graph.NoWayOut) {
		return ""
	}
	var all []string
	for _, e := range s.Graph.Egress {
		why := e.TC
		if strings.HasSuffix(w.Detail, "XDP") {
			why = e.XDP
		}
		if e.Index != p.Index && len(why) > 0 {
			all = append(all, e.Name+" ("+strings.TrimSpace(why[0].Reason.String()+" "+why[0].Detail)+")")
		}
	}
	if len(all) == 0 {
		return ", and there is none"
	}
	return ": " + listed(all, most)
}

// once takes out what is said twice: a device on which no program runs has the reasons of its families, too. What holds for both families is said of the device,
// what holds for one of them of that. Where Linux does not forward the other, there is no telling, and both stay.
func once(all []api.Reason) []api.Reason {
	return slices.DeleteFunc(slices.Clone(all), func(r api.Reason) bool {
		in4, in6 := slices.Contains(all, ofFamily(r, "ip4")), slices.Contains(all, ofFamily(r, "ip6"))
		switch {
		case r.Hook != "" || r.Input != "":
			return false
		case in4 && in6:
			return r.Family != "" && slices.Contains(all, ofFamily(r, ""))
		case r.Family != "" || !in4 && !in6:
			return false
		}
		other := map[bool]string{true: "ip6", false: "ip4"}[in4]
		forwarding := reason.ForwardingOff.String()
		off := func(o api.Reason) bool { return o.Reason == forwarding && o.Family == other && o.Input == "" }
		return r.Reason == forwarding || !slices.ContainsFunc(all, off)
	})
}

func ofFamily(r api.Reason, family string) api.Reason {
	r.Family = family
	return r
}

// concerns says whether one of a device's reasons is behind what becomes of packets of a family ("" for any): one that the other family has, too, but not this one, is that one's.
func concerns(r api.Reason, all []api.Reason, family string) bool {
	if family == "" || r.Family != "" {
		return family == "" || r.Family == family
	}
	other := map[string]string{"ip4": "ip6", "ip6": "ip4"}[family]
	return slices.Contains(all, ofFamily(r, family)) || !slices.Contains(all, ofFamily(r, other))
}

// carried gives why nothing is attached to a device. A bridge is fast all the same by its ports, which is said with the reason.
func carried(s *control.State, p *graph.Port) []graph.Why {
	ports := s.Graph.Carriers(p.Index)
	if len(ports) == 0 {
		return p.Why
	}
	why := slices.Clone(p.Why)
	for i := range why {
		if why[i].Reason == reason.LinkKind {
			why[i].Detail += "; its ports carry its packets: " + graph.Some(ports)
		}
	}
	return why
}
