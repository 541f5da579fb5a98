// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/kstate/nftables"
	"github.com/shuntnet/shunt/internal/kstate/xtables"
	rs "github.com/shuntnet/shunt/internal/model/ruleset"
)

// nftFile is what `nft -j list ruleset` wrote, while it becomes what the kernel would hold.
type nftFile struct {
	*source
	dump  nftables.Dump
	sets  map[string]int // by family, table and name: place in dump.Sets
	drawn int            // sets without a name of their own so far
}

var families = map[string]byte{"inet": 1, "ip": 2, "arp": 3, "netdev": 5, "bridge": 7, "ip6": 10}

var hookNumbers = map[string][]string{
	"ip": {"prerouting", "input", "forward", "output", "postrouting"}, "netdev": {"ingress", "egress"}, "arp": {"input", "output"},
}

func parseNFT(name string, input []byte) (*rs.Ruleset, error) {
	f := &nftFile{source: &source{name, input}, sets: map[string]int{}}
	root, err := readJSON(f.source)
	if err != nil {
		return nil, err
	}
	list, err := f.need(root, "nftables", array)
	if err != nil {
		return nil, err
	}
	// What is named comes before what names it: rules last, whatever the order of the file.
	for _, pass := range []string{"metainfo table", "chain set map counter quota limit flowtable ct_helper ct_timeout ct_expectation secmark synproxy tunnel", "element", "rule"} {
		for _, n := range list.list {
			key, value, ok := n.only()
			if !ok {
				return nil, f.wrong(n, "an object with one key is expected: table, chain, set, map, rule …")
			}
			if slices.Contains(strings.Fields(pass), strings.ReplaceAll(key, " ", "_")) {
				if err := f.object(key, value); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, n := range list.list {
		switch key, _, _ := n.only(); strings.ReplaceAll(key, " ", "_") {
		case "metainfo", "table", "chain", "set", "map", "counter", "quota", "limit", "flowtable", "ct_helper", "ct_timeout", "ct_expectation", "secmark", "synproxy", "tunnel", "element", "rule":
		case "add", "replace", "create", "insert", "delete", "list", "reset", "flush", "rename":
			return nil, f.fail(n.at, key, "commands are not understood; write what `nft -j list ruleset` lists")
		default:
			return nil, f.fail(n.at, key, "nothing of this name is in a rule set; there are table, chain, rule, set, map, element, counter, quota, limit, flowtable …")
		}
	}
	var out rs.Ruleset
	nftables.Translate(&f.dump, &out, xtables.Context{})
	return &out, nil
}

// at is where an object belongs.
func (f *nftFile) at(n *node, key string) (family byte, familyName, table string, err error) {
	if n.kind != object {
		return 0, "", "", f.wrong(n, "an object is expected")
	}
	if familyName, err = f.needText(n, "family"); err != nil {
		return 0, "", "", err
	}
	family, known := families[familyName]
	if !known {
		return 0, "", "", f.wrong(n.get("family"), "there are inet, ip, ip6, netdev, bridge and arp")
	}
	if table, err = f.needText(n, key); err == nil && table == "" {
		err = f.wrong(n.get(key), "a name is not empty")
	}
	if err == nil && key == "table" && !slices.ContainsFunc(f.dump.Tables, func(t nftables.Table) bool { return t.Family == family && t.Name == table }) {
		err = f.wrong(n.get(key), "there is no table %s %s in the file", familyName, table)
	}
	return family, familyName, table, err
}

func (f *nftFile) object(key string, n *node) error {
	switch key {
	case "metainfo":
		version, err := f.optional(n, "json_schema_version", 1, 0, 1<<31)
		if err == nil && version != 1 {
			err = f.wrong(n.get("json_schema_version"), "only version 1 of the schema is known")
		}
		return err
	case "table":
		return f.tableObject(n)
	case "chain":
		return f.chainObject(n)
	case "set", "map":
		return f.setObject(n, key == "map")
	case "element":
		return f.elementObject(n)
	case "rule":
		return f.ruleObject(n)
	case "flowtable": // rules that use one say so
		_, _, _, err := f.at(n, "table")
		return err
	}
	return f.statefulObject(key, n)
}

func (f *nftFile) tableObject(n *node) error {
	family, _, name, err := f.at(n, "name")
	if err != nil {
		return err
	}
	t := nftables.Table{Family: family, Name: name}
	const notUnderstood = 1 << 31
	if n.unknown("family name handle flags comment") != "" {
		t.Flags |= notUnderstood
	}
	flags, err := f.texts(n.get("flags"))
	if err != nil {
		return err
	}
	for _, w := range flags {
		switch w {
		case "dormant":
			t.Flags |= nftables.TableDormant
		case "owner", "persist":
		default: // nft 1.0.6 writes the table's name for every flag
			t.Flags |= notUnderstood
		}
	}
	f.dump.Tables = append(f.dump.Tables, t)
	return nil
}

// texts reads one text or a list of them.
func (f *nftFile) texts(n *node) (out []string, err error) {
	switch {
	case n == nil:
		return nil, nil
	case n.kind == text:
		return []string{n.text}, nil
	case n.kind != array:
		return nil, f.wrong(n, "a text or a list of texts is expected")
	}
	for _, v := range n.list {
		if v.kind != text {
			return nil, f.wrong(v, "a text is expected")
		}
		out = append(out, v.text)
	}
	return out, nil
}

func (f *nftFile) chainObject(n *node) error {
	family, familyName, table, err := f.at(n, "table")
	if err != nil {
		return err
	}
	c := nftables.Chain{Family: family, Table: table, Policy: nftables.CodeAccept}
	if c.Name, err = f.needText(n, "name"); err != nil {
		return err
	}
	if f.chainNamed(family, table, c.Name) >= 0 {
		return f.wrong(n.get("name"), "the chain is there already")
	}
	var problems []string
	if k := n.unknown("family table name handle type hook prio policy dev comment"); k != "" {
		problems = append(problems, k)
	}
	if hook := n.get("hook"); hook != nil {
		if err := f.base(n, hook, familyName, &c); err != nil {
			return err
		}
		if (familyName == "netdev" || hook.text == "ingress" || hook.text == "egress") && len(c.Devices) == 0 {
			problems = append(problems, "its devices, which nft did not write")
		}
	}
	if problems != nil {
		if f.dump.ChainProblems == nil {
			f.dump.ChainProblems = map[int][]string{}
		}
		f.dump.ChainProblems[len(f.dump.Chains)] = problems
	}
	f.dump.Chains = append(f.dump.Chains, c)
	return nil
}

func (f *nftFile) base(n, hook *node, family string, c *nftables.Chain) error {
	names := hookNumbers["ip"]
	switch family {
	case "netdev", "arp":
		names = hookNumbers[family]
	case "inet":
		names = append(slices.Clone(names), "ingress")
	}
	i := slices.Index(names, hook.text)
	if hook.kind != text || i < 0 {
		return f.wrong(hook, "in family %s there are %s", family, strings.Join(names, ", "))
	}
	prio, err := f.need(n, "prio", numeral)
	if err != nil {
		return err
	}
	priority, err := f.number(prio, -1<<31, 1<<31-1)
	if err != nil {
		return err
	}
	c.Base, c.Hook, c.Priority = true, uint32(i), int32(priority)
	if c.Type, err = f.needText(n, "type"); err != nil {
		return err
	}
	if p := n.get("policy"); p != nil {
		switch {
		case p.is("accept"):
		case p.is("drop"):
			c.Policy = nftables.CodeDrop
		default:
			return f.wrong(p, "a policy is accept or drop")
		}
	}
	c.Devices, err = f.texts(n.get("dev"))
	slices.Sort(c.Devices)
	return err
}

func (f *nftFile) chainNamed(family byte, table, name string) int {
	return slices.IndexFunc(f.dump.Chains, func(c nftables.Chain) bool { return c.Family == family && c.Table == table && c.Name == name })
}

// statefulObject is a named counter, or one that only Linux evaluates.
func (f *nftFile) statefulObject(key string, n *node) error {
	family, _, table, err := f.at(n, "table")
	if err != nil {
		return err
	}
	name, err := f.needText(n, "name")
	if err != nil {
		return err
	}
	typ, _ := nftables.ObjectTypeNamed(key)
	o := nftables.Object{Family: family, Table: table, Name: name, Type: typ, Data: &nftables.Opaque{Name: key, Why: "the kind of object is not modelled"}}
	if key == "counter" {
		c, err := f.counter(n)
		if err != nil {
			return err
		}
		o.Data = c
	}
	f.dump.Objects = append(f.dump.Objects, o)
	return nil
}

func (f *nftFile) counter(n *node) (*nftables.Counter, error) {
	c := &nftables.Counter{}
	if n.kind == null {
		return c, nil
	}
	packets, err := f.optional(n, "packets", 0, 0, 1<<63-1)
	if err != nil {
		return nil, err
	}
	bytes, err := f.optional(n, "bytes", 0, 0, 1<<63-1)
	c.Packets, c.Bytes = uint64(packets), uint64(bytes)
	return c, err
}

func (f *nftFile) ruleObject(n *node) error {
	family, _, table, err := f.at(n, "table")
	if err != nil {
		return err
	}
	in := nftables.Rule{Family: family, Table: table}
	if in.Chain, err = f.needText(n, "chain"); err != nil {
		return err
	}
	chain := f.chainNamed(family, table, in.Chain)
	if chain < 0 {
		return f.wrong(n.get("chain"), "the table has no such chain")
	}
	if c := n.get("comment"); c != nil {
		if c.kind != text {
			return f.wrong(c, "a comment is a text")
		}
		in.Comment = c.text
	}
	handle, err := f.optional(n, "handle", 0, 0, 1<<63-1)
	if err != nil {
		return err
	}
	in.Handle = uint64(handle)
	r := &nftRule{nftFile: f, family: family, table: table, l4: -1, proto: map[byte]int{2: 4, 10: 6}[family]}
	if k := n.unknown("family table chain handle expr comment index"); k != "" {
		r.opaque(k, "of a rule, it is not understood")
	}
	list, err := f.need(n, "expr", array)
	if err != nil {
		return err
	}
	for _, s := range list.list {
		if err := r.statement(s); err != nil {
			return err
		}
	}
	in.Exprs = r.exprs
	f.dump.Chains[chain].Rules = append(f.dump.Chains[chain].Rules, &in)
	return nil
}

func setKey(family byte, table, name string) string {
	return fmt.Sprint(family, "\x00", table, "\x00", name)
}
