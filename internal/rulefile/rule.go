// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/xtables"
	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// ruleParser reads one rule of iptables.
type ruleParser struct {
	*reader
	file     *saveFile
	chain    string
	counters [2]uint64

	head    xtables.Head
	given   map[string]bool
	matches []*extension
	target  *extension // nil for a verdict, or none
	verdict rs.Verdict
	jump    word // -j or -g and what it names
	slow    string
}

// extension is a match or a target while its options are read.
type extension struct {
	name    word
	kind    *kind // nil for one whose options are not understood
	info    []byte
	given   map[string]bool
	options []string // as they stand there
	opaque  bool     // has options that only Linux evaluates
}

// basics are the options of every rule, by each of their names.
var basics = map[string]string{
	"-s": "-s", "--source": "-s", "--src": "-s", "-d": "-d", "--destination": "-d", "--dst": "-d", "-i": "-i", "--in-interface": "-i",
	"-o": "-o", "--out-interface": "-o", "-p": "-p", "--protocol": "-p", "--proto": "-p", "-f": "-f", "--fragment": "-f",
	"-m": "-m", "--match": "-m", "-j": "-j", "--jump": "-j", "-g": "-g", "--goto": "-g", "-c": "-c", "--set-counters": "-c",
	"-4": "-4", "--ipv4": "-4", "-6": "-6", "--ipv6": "-6",
}

func (p *ruleParser) parse() (rs.Rule, error) {
	p.given = map[string]bool{}
	width := 4
	if p.file.six {
		width = 16
	}
	for n := range 2 {
		p.head.Addr[n], p.head.Mask[n] = make([]byte, width), make([]byte, width)
		p.head.Name[n], p.head.NameMask[n] = make([]byte, 16), make([]byte, 16)
	}
	for !p.done() {
		if err := p.option(); err != nil {
			return rs.Rule{}, err
		}
	}
	for _, e := range append(p.matches, p.target) {
		if e != nil && e.kind != nil && !e.opaque {
			if err := e.kind.complete(p, e); err != nil {
				return rs.Rule{}, err
			}
		}
	}
	return p.rule(), nil
}

// option reads one option with its values.
func (p *ruleParser) option() error {
	not := false
	w := p.next()
	if w.text == "!" && !w.quoted {
		not = true
		if w = p.next(); w.text == "" {
			return p.fail(w, "an option follows !")
		}
	}
	name := basics[w.text]
	if name == "" || w.quoted {
		return p.extensionOption(w, not)
	}
	if !strings.Contains("-m -j -g", name) {
		if p.given[name] {
			return p.fail(w, "given twice")
		}
		p.given[name] = true
	}
	if not && strings.Contains("-m -j -g -c -4 -6", name) {
		return p.fail(w, "cannot be negated")
	}
	switch name {
	case "-s", "-d":
		n := strings.Index("-s-d", name) / 2
		return p.address(w, n, not)
	case "-i", "-o":
		n := strings.Index("-i-o", name) / 2
		return p.device(w, n, not)
	case "-p":
		return p.protocol(w, not)
	case "-f":
		if p.file.six {
			return p.fail(w, "ip6tables has no fragment flag; it has -m frag")
		}
		p.head.Fragment = true
		p.negate(xtables.NotFragment, not)
		return nil
	case "-c":
		return p.setCounters(w)
	case "-4", "-6":
		if (name == "-6") != p.file.six {
			return p.fail(w, "rules of the other family do not belong into this file")
		}
		return nil
	case "-m":
		return p.match(w)
	}
	return p.to(w, name == "-g")
}

func (p *ruleParser) negate(flag uint8, not bool) {
	if not {
		p.head.Not |= flag
	}
}

func (p *ruleParser) address(option word, n int, not bool) error {
	w, err := p.value(option, "an address, with /prefix length or /mask")
	if err != nil {
		return err
	}
	addr, mask, err := p.masked(w, p.file.six)
	if err != nil {
		return err
	}
	p.head.Addr[n], p.head.Mask[n] = addr, mask
	p.negate([]uint8{xtables.NotSource, xtables.NotDest}[n], not)
	return nil
}

func (p *ruleParser) device(option word, n int, not bool) error {
	w, err := p.value(option, "the name of an interface; + at its end stands for any rest")
	if err != nil {
		return err
	}
	name, mask := p.head.Name[n], p.head.NameMask[n]
	if len(w.text) > 15 || w.text == "" || strings.ContainsAny(w.text, "/ \t") {
		return p.fail(w, "the name of an interface has 1 to 15 characters, without / and blanks")
	}
	length := len(w.text) + 1 // and the zero behind it
	if strings.HasSuffix(w.text, "+") {
		length -= 2
	}
	copy(name, w.text[:min(length, len(w.text))])
	for i := range length {
		mask[i] = 0xff
	}
	p.negate([]uint8{xtables.NotIn, xtables.NotOut}[n], not)
	return nil
}

func (p *ruleParser) protocol(option word, not bool) error {
	w, err := p.value(option, "a protocol's name or number")
	if err != nil {
		return err
	}
	proto, err := p.protocolOf(w)
	if err != nil {
		return err
	}
	if proto == 0 && not {
		return p.fail(w, "the rule would never match: all protocols, negated")
	}
	p.head.Proto = proto
	p.negate(xtables.NotProto, not)
	return nil
}

// protocolOf is the number of a protocol that is named, or given by its number.
func (p *ruleParser) protocolOf(w word) (uint16, error) {
	if proto, known := protocols[strings.ToLower(w.text)]; known {
		return proto, nil
	}
	n, err := p.number(w, 255)
	if err != nil {
		return 0, p.fail(w, "no protocol is known by this name; write its number, 0 to 255")
	}
	return uint16(n), nil
}

func (p *ruleParser) setCounters(option word) error {
	for i := range p.counters {
		w, err := p.value(option, "a number of packets, and of bytes")
		if err != nil {
			return err
		}
		if p.counters[i], err = p.number(w, ^uint64(0)); err != nil {
			return err
		}
	}
	return nil
}

// match is -m: an extension's options follow.
func (p *ruleParser) match(option word) error {
	w, err := p.value(option, "the name of a match")
	if err != nil {
		return err
	}
	e := &extension{name: w, kind: matchKinds[w.text], given: map[string]bool{}}
	switch {
	case e.kind != nil:
		if e.kind.only != 0 && (e.kind.only == 6) != p.file.six {
			return p.fail(w, "the match is for the other family")
		}
		p.begin(e)
	case !foreignMatches[w.text]:
		return p.fail(w, "no match of this name is known")
	}
	p.matches = append(p.matches, e)
	return nil
}

func (p *ruleParser) begin(e *extension) {
	e.info = make([]byte, e.kind.size)
	if e.kind.begin != nil {
		e.kind.begin(e.info)
	}
}

// to is -j or -g.
func (p *ruleParser) to(option word, isGoto bool) error {
	w, err := p.value(option, "a target or a chain")
	if err != nil {
		return err
	}
	if p.jump.text != "" {
		return p.fail(option, "the rule leads somewhere already: %s", p.jump.text)
	}
	p.jump = w
	c := p.file.table.Chain(w.text)
	switch {
	case isVerdict(w.text) && !isGoto:
		if w.text == "QUEUE" {
			p.slow = "-j QUEUE"
		}
		p.verdict.Code = verdicts[w.text]
	case c != nil && c.Base != nil:
		return p.fail(w, "rules cannot lead to a chain that a hook calls")
	case c != nil && isGoto:
		p.verdict = rs.Verdict{Code: rs.Goto, Chain: w.text}
	case c != nil:
		p.verdict = rs.Verdict{Code: rs.Jump, Chain: w.text}
	case isGoto:
		return p.fail(w, "table %s has no such chain", p.file.table.Name)
	case targetKinds[w.text] != nil:
		p.target = &extension{name: w, kind: targetKinds[w.text], given: map[string]bool{}}
		p.begin(p.target)
	case xtables.IsTarget(w.text) || foreignTargets[w.text]:
		p.target = &extension{name: w, given: map[string]bool{}}
	default:
		return p.fail(w, "neither a chain of table %s nor a target", p.file.table.Name)
	}
	return nil
}

var verdicts = map[string]rs.Code{"ACCEPT": rs.Accept, "DROP": rs.Drop, "RETURN": rs.Return, "QUEUE": rs.Continue}

func isVerdict(name string) bool { _, is := verdicts[name]; return is }

// extensionOption is an option of one of the matches, or of the target: of the one that came last and knows it.
func (p *ruleParser) extensionOption(w word, not bool) error {
	if !strings.HasPrefix(w.text, "-") || w.quoted {
		return p.fail(w, "an option is expected: -s, -d, -i, -o, -p, -m, -j, -g, or one of a match or target")
	}
	loaded := p.matches
	if p.target != nil {
		loaded = append(loaded[:len(loaded):len(loaded)], p.target)
	}
	for i := len(loaded) - 1; i >= 0; i-- {
		if e := loaded[i]; e.kind != nil && e.kind.knows(w.text) {
			return p.known(e, w, not)
		} else if e.kind == nil && strings.HasPrefix(w.text, "--") {
			p.opaque(e, w, not)
			return nil
		}
	}
	if name := p.implied(); name != "" && matchKinds[name].knows(w.text) && p.head.Not&xtables.NotProto == 0 {
		e := &extension{name: word{text: name}, kind: matchKinds[name], given: map[string]bool{}}
		p.begin(e)
		p.matches = append(p.matches, e)
		return p.known(e, w, not)
	}
	var allowed []string
	for _, e := range loaded {
		if e.kind != nil {
			allowed = append(allowed, e.name.text+": "+e.kind.names())
		}
	}
	if allowed == nil {
		return p.fail(w, "no such option; those of a match follow -m and its name")
	}
	return p.fail(w, "no such option; there are those of %s", strings.Join(allowed, "; "))
}

// implied is the match that -p brings along.
func (p *ruleParser) implied() string {
	return map[uint16]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6", 136: "udplite"}[p.head.Proto]
}

func (p *ruleParser) known(e *extension, w word, not bool) error {
	o, native := e.kind.options[w.text]
	if !native {
		o = option{words: e.kind.others[w.text], not: true}
		e.opaque = true
	}
	switch {
	case not && !o.not:
		return p.fail(w, "cannot be negated")
	case e.given[o.key(w.text)]:
		return p.fail(w, "given twice")
	}
	e.given[o.key(w.text)] = true
	values := make([]word, o.words)
	for i := range values {
		var err error
		if values[i], err = p.value(w, orValue(o.what)); err != nil {
			return err
		}
	}
	e.note(w, not, values)
	if !native {
		return nil
	}
	return o.set(p, e.info, values, not)
}

func orValue(what string) string {
	if what == "" {
		return "a value"
	}
	return what
}

// opaque takes the option of an extension that only its name is known of, up to the next option.
func (p *ruleParser) opaque(e *extension, w word, not bool) {
	var values []word
	for !p.done() {
		v := p.peek()
		if !v.quoted && (v.text == "!" || basics[v.text] != "" || strings.HasPrefix(v.text, "--")) {
			break
		}
		values = append(values, p.next())
	}
	e.note(w, not, values)
}

func (e *extension) note(w word, not bool, values []word) {
	if not {
		e.options = append(e.options, "!")
	}
	e.options = append(e.options, w.text)
	for _, v := range values {
		if v.quoted {
			v.text = xtables.Quote(v.text)
		}
		e.options = append(e.options, v.text)
	}
}

// toKernel is the extension as the kernel would get it, or with its options alone.
func (e *extension) toKernel() xtables.Extension {
	x := xtables.Extension{Name: e.name.text, Options: strings.Join(e.options, " ")}
	if e.kind != nil && !e.opaque {
		x.Name, x.Revision, x.Info, x.Options = e.kind.kernelName(e.name.text), e.kind.rev, e.info, ""
	}
	return x
}

// rule puts the steps together in the kernel's order.
func (p *ruleParser) rule() rs.Rule {
	c := &xtables.Context{Six: p.file.six}
	steps, words := p.head.Steps(p.file.six)
	for _, m := range p.matches {
		s, text := xtables.Match(c, m.toKernel())
		steps, words = append(steps, s...), append(words, text)
	}
	steps = append(steps, rs.Count{Counter: p.file.counter(p.chain, p.counters)})
	switch {
	case p.target != nil:
		s, text := xtables.Target(c, p.target.toKernel())
		steps, words = append(steps, s...), append(words, text)
	case p.slow != "":
		steps, words = append(steps, rs.Slow{Name: "queue", Text: p.slow}), append(words, p.slow)
	case p.jump.text != "":
		steps = append(steps, p.verdict)
		how := "-j "
		if p.verdict.Code == rs.Goto {
			how = "-g "
		}
		words = append(words, how+p.jump.text)
	}
	return rs.Rule{Text: strings.Join(words, " "), Steps: steps}
}
