// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/rules"
)

// Fate is what became of a rule, or of a chain that is left to Linux as a whole.
type Fate struct {
	Family  string `json:"family"`
	Table   string `json:"table"`
	Chain   string `json:"chain"`
	Number  int    `json:"number"` // 0 for the chain as a whole
	Text    string `json:"text"`
	Outcome string `json:"outcome"` // "compiled", "linux", "passes", "unmet", "mapping"
	Why     string `json:"why,omitempty"`
}

// explainer collects what became of the rules. Programs speak of the reduced rule set, whose rules have the places of the whole one's.
type explainer struct {
	whole, reduced *ruleset.Ruleset
	maps           *mappings
	met            map[*ruleset.Rule]bool
	slow           map[*ruleset.Rule][]string
	chains         map[string][]string // by table and chain: why a chain as a whole is left to Linux
}

func newExplainer(whole, reduced *ruleset.Ruleset, m *mappings) *explainer {
	return &explainer{whole, reduced, m, map[*ruleset.Rule]bool{}, map[*ruleset.Rule][]string{}, map[string][]string{}}
}

// program takes in what a family's packets meet.
func (e *explainer) program(pr *rules.Program) {
	for r := range pr.Met() {
		e.met[r] = true
	}
	for _, s := range pr.Slow() {
		if s.By.Rule == nil && s.By.Table != nil {
			if at := chainKey(s.By.Table, s.By.Chain); !slices.Contains(e.chains[at], s.Why) {
				e.chains[at] = append(e.chains[at], s.Why)
			}
			continue
		}
		if s.By.Rule != nil && !slices.Contains(e.slow[s.By.Rule], s.Why) {
			e.slow[s.By.Rule] = append(e.slow[s.By.Rule], s.Why)
		}
	}
}

func chainKey(t *ruleset.Table, c *ruleset.Chain) string {
	return t.Family.String() + " " + t.Name + " " + c.Name
}

func (e *explainer) fates() (out []Fate) {
	for i := range e.whole.Tables {
		t := &e.whole.Tables[i]
		for j := range t.Chains {
			c := &t.Chains[j]
			if why := e.chains[chainKey(t, c)]; why != nil {
				out = append(out, Fate{Family: t.Family.String(), Table: t.Name, Chain: c.Name, Text: "the chain", Outcome: "linux", Why: strings.Join(why, "; ")})
			}
			for k := range c.Rules {
				r := &c.Rules[k]
				f := Fate{Family: t.Family.String(), Table: t.Name, Chain: c.Name, Number: r.Number, Text: r.Text}
				f.Outcome, f.Why = e.unmet(t, c, r)
				if why := e.maps.of[r]; why != "" {
					f.Outcome, f.Why = "mapping", why
				} else if own := e.reduced.Tables[i].Chains[j].Rules; k < len(own) {
					switch r := &own[k]; {
					case e.slow[r] != nil:
						f.Outcome, f.Why = "linux", reasons(r, e.slow[r])
					case e.met[r] && setsMark(r):
						f.Outcome, f.Why = "linux", "the rules behind it see the mark, but only Linux writes it"
					case e.met[r] || e.calls(&e.reduced.Tables[i], r):
						f.Outcome, f.Why = "compiled", ""
					}
				}
				out = append(out, f)
			}
		}
	}
	return out
}

// setsMark says whether a rule changes the packet's mark. Whoever asks for it later, routing or a queue, asks Linux, which meets the packet afterwards with the
// rules that it needs anyway for what the object does not decide. Written twice, a mark could be another one (--xor-mark, or a rule in front that asks for it).
func setsMark(r *ruleset.Rule) bool {
	return slices.ContainsFunc(r.Steps, func(s ruleset.Step) bool {
		if m, ok := s.(ruleset.SetByMap); ok {
			return m.Field == ruleset.Mark
		}
		f, ok := s.(ruleset.SetField)
		return ok && f.Field == ruleset.Mark
	})
}

// calls says whether a rule leads to rules that packets meet: it is written out with them.
func (e *explainer) calls(t *ruleset.Table, r *ruleset.Rule) bool {
	if len(r.Steps) == 0 {
		return false
	}
	v, ok := r.Steps[len(r.Steps)-1].(ruleset.Verdict)
	if !ok || v.Code != ruleset.Jump && v.Code != ruleset.Goto {
		return false
	}
	c := t.Chain(v.Chain)
	return c != nil && e.anyMet(c)
}

func (e *explainer) anyMet(c *ruleset.Chain) bool {
	for i := range c.Rules {
		if r := &c.Rules[i]; e.met[r] || e.slow[r] != nil {
			return true
		}
	}
	return false
}

// reasons are why a rule is left to Linux, with what its unknown steps say.
func reasons(r *ruleset.Rule, why []string) string {
	out := slices.Clone(why)
	for i := range out {
		for _, s := range r.Steps {
			if u, ok := s.(ruleset.Unknown); ok && strings.HasPrefix(out[i], u.Name) && !strings.HasPrefix(u.Text, "-") {
				out[i] += " (" + u.Text + ")"
				break
			}
		}
	}
	return strings.Join(out, "; ")
}

// unmet says why the object has nothing of a rule: no packet that it decides about meets the rule, or the rule accepts what the object passes anyway.
func (e *explainer) unmet(t *ruleset.Table, c *ruleset.Chain, r *ruleset.Rule) (outcome, why string) {
	switch {
	case t.Dormant:
		return "unmet", "its table is dormant"
	case t.Family == ruleset.Bridge || t.Family == ruleset.ARP:
		return "unmet", "routed packets do not meet this family"
	case c.Base != nil && (c.Base.Hook == ruleset.Input || c.Base.Hook == ruleset.Output):
		return "unmet", "forwarded packets do not meet this hook"
	case accepts(r):
		return "passes", "the object passes what it accepts without asking, unless no packet reaches it; Linux needs it"
	}
	return "unmet", "no forwarded packet reaches it, or it changes nothing"
}

func accepts(r *ruleset.Rule) bool {
	if len(r.Steps) == 0 {
		return false
	}
	v, ok := r.Steps[len(r.Steps)-1].(ruleset.Verdict)
	return ok && v.Code == ruleset.Accept
}
