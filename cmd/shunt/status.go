// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/graph"
)

func newStatus(g *global) *cobra.Command {
	a := &asking{global: g}
	var ready bool
	c := &cobra.Command{
		Use:   "status",
		Short: "show what is fast, and why the rest is not",
		Long: `Show each interface with its hook, whether forwarding from it is fast for each family, its packets (forwarded, dropped as Linux would, left to Linux), and one line for each reason why it is not.
With --ready the exit status is 1 while the daemon still starts, or cannot follow Linux's configuration and leaves everything to it: for probes and scripts that wait.
The names of the reasons are listed by "shunt show reasons --all" and in docs/reasons.md.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var s api.Status
			if err := a.client().Call(c.Context(), api.VerbStatus, nil, &s); err != nil {
				return err
			}
			var err error
			if a.json {
				err = printJSON(c.OutOrStdout(), s)
			} else {
				w := newScreen(c.OutOrStdout())
				printStatus(w, &s)
				err = w.err
			}
			if err == nil && ready && (!s.Ready || s.Failing != "") {
				return silentError{exitFailed}
			}
			return err
		},
	}
	c.Flags().BoolVar(&ready, "ready", false, "exit with 1 unless the daemon follows Linux's configuration")
	return a.options(c, true)
}

// loopbackLast orders interfaces: loopback never forwards, which is no news.
func loopbackLast(i api.Interface) int {
	if i.Name == "lo" {
		return 1
	}
	return 0
}

// printStatus tells people.
func printStatus(w *screen, s *api.Status) {
	if !s.Ready {
		w.printf("shunt %s is starting: it still reads Linux's configuration\n", s.Version)
		if s.Failing != "" {
			w.printf("%s its first round failed, and is tried again: %s\n", w.paint(red, "!"), s.Failing)
		}
		return
	}
	printHeadline(w, s)
	if s.Failing != "" {
		w.printf("%s everything goes to Linux, and what follows is how it was: the last round failed: %s\n\n", w.paint(red, "!"), s.Failing)
	}
	faces := slices.Clone(s.Interfaces)
	slices.SortStableFunc(faces, func(a, b api.Interface) int { return loopbackLast(a) - loopbackLast(b) })
	faces, down := withoutDown(faces)
	printInterfaces(w, faces)
	if len(down) > 0 {
		w.printf("and %d interfaces that are down (%s, …): shunt show interfaces\n", len(down), strings.Join(down[:3], ", "))
	}
	printWhy(w, faces)
	if s.NoGeneric != "" {
		w.printf("%s a change waits for its programs to be loaded, since the generic one is not there: %s\n", w.paint(yellow, "!"), s.NoGeneric)
	}
	for _, f := range s.Faults {
		w.printf("%s could not be read: %s\n", w.paint(red, "!"), f)
	}
}

// manyDown is how many interfaces that are down status does not show one by one: a host can have hundreds.
const manyDown = 9

// withoutDown takes out the interfaces that are down and have had no packets, where they are many, and gives their names.
func withoutDown(faces []api.Interface) (shown []api.Interface, down []string) {
	for _, i := range faces {
		if i.Up || i.Packets.Fast+total(i.Packets.Dropped)+total(i.Packets.Slow) > 0 {
			shown = append(shown, i)
		} else {
			down = append(down, i.Name)
		}
	}
	if len(down) < manyDown {
		return faces, nil
	}
	return shown, down
}

func printHeadline(w *screen, s *api.Status) {
	fast, awaited, up := 0, 0, 0
	for _, i := range s.Interfaces {
		if i.State == api.StateFast {
			fast++
			if awaits(i) {
				awaited++
			}
		}
		if i.Up && i.Name != "lo" {
			up++
		}
	}
	where := ""
	if s.Netns != "" {
		where = " in " + s.Netns
	}
	w.printf("shunt %s%s: %d of %d interfaces fast", s.Version, where, fast, up)
	if awaited > 0 {
		fmt.Fprint(w, w.paint(yellow, fmt.Sprintf(", %d of them once their first program is made", awaited)))
	}
	resume := " paused (shunt resume)"
	if s.Netns != "" {
		resume = " paused (shunt resume --netns " + s.Netns + ")" // without, it is the daemon's own namespace that is resumed
	}
	switch {
	case s.Paused:
		fmt.Fprint(w, w.paint(yellow, ","+resume))
	case len(s.PausedIf) > 0:
		fmt.Fprint(w, w.paint(yellow, ", "+strings.Join(s.PausedIf, " and ")+resume))
	}
	switch {
	case s.Sync.Events == 0 && s.Sync.LastChange != nil:
		w.printf("; no kernel events yet, the last round took %.1f ms", s.Sync.LastChangeMS)
	case s.Sync.LastChange != nil:
		w.printf("; %s, the last change took %.1f ms", kernelEvents(s.Sync.Events), s.Sync.LastChangeMS)
	default:
		w.printf("; %s", kernelEvents(s.Sync.Events))
	}
	if s.Sync.Resyncs > 0 {
		w.printf(", %d resyncs", s.Sync.Resyncs)
	}
	if s.Sync.Failures > 0 {
		fmt.Fprint(w, w.paint(red, fmt.Sprintf(", %d rounds failed", s.Sync.Failures)))
	}
	fmt.Fprint(w, "\n\n")
	if len(s.Namespaces) > 1 {
		rows := [][]cell{heads("NAMESPACE", "STATE")}
		for _, n := range s.Namespaces {
			rows = append(rows, []cell{{text: orDash(n.Name)}, namespaceState(n)})
		}
		w.table(rows)
		fmt.Fprintln(w)
	}
}

func namespaceState(n api.Namespace) cell {
	switch {
	case n.Error != "":
		return cell{text: n.Error, sgr: red}
	case n.Ready:
		return cell{text: "ready", sgr: green}
	}
	return cell{text: "starting", sgr: yellow}
}

func printInterfaces(w *screen, faces []api.Interface) {
	rows := [][]cell{heads("INTERFACE", "HOOK", "STATE", "IP4", "IP6", ">FAST", ">DROPPED", ">SLOW", "")}
	for _, i := range faces {
		if i.Name == "lo" {
			rows = append(rows, []cell{{text: i.Name, sgr: dim}, {text: "-", sgr: dim}})
			continue
		}
		rows = append(rows, []cell{
			{text: i.Name}, {text: hookCell(i)}, stateCell(i.State), stateCell(i.IP4), stateCell(i.IP6),
			number(i.Packets.Fast), number(total(i.Packets.Dropped)), number(total(i.Packets.Slow)), {text: topReasons(i.Packets.Slow), sgr: dim},
		})
	}
	w.table(rows)
}

// awaits says whether everything that comes in by an interface goes to Linux until its first program is made.
func awaits(i api.Interface) bool { return strings.Contains(i.Tier, "awaited") }

// hookCell says where programs run, and if it is not those made for the interface.
func hookCell(i api.Interface) string {
	switch {
	case awaits(i):
		return i.Hook + ", awaited"
	case strings.Contains(i.Tier, "generic"):
		return i.Hook + ", generic"
	}
	return i.Hook
}

func stateCell(state string) cell {
	return cell{text: state, sgr: map[string]string{api.StateFast: green, api.StatePartial: yellow, api.StateSlow: red, api.StateOff: dim}[state]}
}

func total(byReason map[string]uint64) (n uint64) {
	for _, v := range byReason {
		n += v
	}
	return n
}

// topReasons are the three most frequent reasons of packets that were not forwarded.
func topReasons(slow map[string]uint64) string {
	names := slices.SortedFunc(maps.Keys(slow), func(a, b string) int {
		return cmp.Or(cmp.Compare(slow[b], slow[a]), strings.Compare(a, b))
	})
	var parts []string
	for _, name := range names[:min(3, len(names))] {
		parts = append(parts, fmt.Sprintf("%s %d", name, slow[name]))
	}
	return strings.Join(parts, ", ")
}

// printWhy gives a line for each reason and what it concerns, with the objects that it speaks of: what keeps interfaces or families from being fast, ways out that
// nothing fast can take, what keeps cards from XDP, and what single rules leave to Linux.
func printWhy(w *screen, faces []api.Interface) {
	var whole, slower, part whyTable
	for _, i := range faces {
		if i.Name == "lo" {
			continue
		}
		for _, r := range i.Reasons {
			switch {
			case r.Part:
				part.add(i.Name, r)
			case r.Hook == "xdp" && i.Hook == "tc":
				r.Hook = ""
				slower.add(i.Name, r)
			default:
				whole.add(i.Name, r)
			}
		}
		for _, r := range closed(&i, faces) {
			r.Input = "(way out)"
			whole.add(i.Name, r)
		}
	}
	whole.print(w, "WHY NOT FAST")
	slower.print(w, "AT TC, NOT AT XDP")
	part.print(w, "FAST, BUT FOR SOME PACKETS")
}

// closed are the reasons against leaving by an interface, where packets that come by any other go to Linux for them; but for what is said of the interface anyway.
func closed(i *api.Interface, faces []api.Interface) (why []api.Reason) {
	if i.State == api.StateSlow && i.Hook == "none" && len(i.Reasons) > 0 {
		return nil // nobody expects to leave by it
	}
	hooks := map[string]bool{}
	for _, from := range faces {
		if from.Name != i.Name && from.State != api.StateSlow && from.Hook != "none" {
			for hook := range strings.SplitSeq(from.Hook, "+") {
				hooks[hook] = true
			}
		}
	}
	for hook := range hooks {
		if !slices.ContainsFunc(i.Egress, func(r api.Reason) bool { return r.Hook == hook }) {
			return nil // some are fast
		}
	}
	for _, r := range i.Egress {
		said := slices.ContainsFunc(i.Reasons, func(o api.Reason) bool { return o.Reason == r.Reason && o.Detail == r.Detail })
		if hooks[r.Hook] && !said {
			why = append(why, r)
		}
	}
	return why
}

// whyTable has an entry for each reason and what it concerns.
type whyTable struct {
	entries []*whyEntry
	at      map[api.Reason]*whyEntry
}

type whyEntry struct {
	faces   []string
	reason  api.Reason // without a detail
	details []string   // one below the other: those of rules are long
}

func (t *whyTable) add(face string, r api.Reason) {
	key := r
	key.Detail = ""
	of := key
	of.Input = face + " " + r.Input
	e := t.at[of]
	if e == nil {
		if t.at == nil {
			t.at = map[api.Reason]*whyEntry{}
		}
		e = &whyEntry{faces: []string{face}, reason: key}
		t.at[of], t.entries = e, append(t.entries, e)
	}
	if len(e.details) == 0 || r.Detail != "" {
		e.details = append(e.details, r.Detail)
	}
}

// manyAlike is how many interfaces of which the same is said share a row: a host can have hundreds of containers.
const manyAlike = 9

// merged has one entry for many interfaces of which the same is said, but for their own names: where the first of them was, with its details.
func (t *whyTable) merged() (out []*whyEntry) {
	alike := map[string][]*whyEntry{}
	said := make([]string, len(t.entries))
	for i, e := range t.entries {
		own := regexp.MustCompile(`\b` + regexp.QuoteMeta(e.faces[0]) + `\b`) // a container's may be v6, which is in net.ipv6
		said[i] = fmt.Sprintf("%+v %s", e.reason, own.ReplaceAllLiteralString(fmt.Sprintf("%q", e.details), "\x00"))
		alike[said[i]] = append(alike[said[i]], e)
	}
	for i, e := range t.entries {
		all := alike[said[i]]
		switch {
		case len(all) < manyAlike:
			out = append(out, e)
		case all[0] == e:
			together := *e
			together.faces = nil
			for _, one := range all {
				together.faces = append(together.faces, one.faces...)
			}
			out = append(out, &together)
		}
	}
	return out
}

func (t *whyTable) print(w *screen, head string) {
	if len(t.entries) == 0 {
		return
	}
	rows := [][]cell{heads(head, "", "REASON", "")}
	for _, e := range t.merged() {
		r := e.reason
		rows = append(rows, []cell{{text: strings.TrimSpace(graph.Some(e.faces) + " " + r.Input)}, {text: strings.TrimSpace(r.Family + " " + r.Hook)}, {text: r.Reason, sgr: yellow}, {text: e.details[0]}})
		for _, d := range e.details[1:] {
			rows = append(rows, []cell{{}, {}, {}, {text: d}})
		}
	}
	fmt.Fprintln(w)
	w.table(rows)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func kernelEvents(n uint64) string {
	if n == 1 {
		return "1 kernel event"
	}
	return fmt.Sprintf("%d kernel events", n)
}
