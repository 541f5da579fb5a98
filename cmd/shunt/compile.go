// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/compile"
	"github.com/shuntnet/shunt/internal/kstate"
	"github.com/shuntnet/shunt/internal/model/ruleset"
	"github.com/shuntnet/shunt/internal/observe"
	"github.com/shuntnet/shunt/internal/rulefile"
)

// compiling are the options of `shunt compile`.
type compiling struct {
	hook, family, iface, output string
	explain, list, json         bool
}

func newCompile() *cobra.Command {
	o := &compiling{}
	c := &cobra.Command{
		Use:   "compile RULES",
		Short: "make a BPF object of a file of rules, which works without a daemon",
		Long: `Read RULES, a file as iptables-save, ip6tables-save or "nft -j list ruleset" writes it ("-" for standard input), and write a BPF object that evaluates them.
Stock "ip link" and "tc" load it:

    ip link set dev eth0 xdp obj FILE sec xdp
    tc qdisc add dev eth0 clsact
    tc filter add dev eth0 ingress bpf da obj FILE sec tc

The object drops what the rules would drop on the way of a forwarded packet, and passes everything else to Linux. Whether a packet is forwarded it
asks the kernel's routes. What it cannot decide goes to Linux as it came, so there Linux needs the same rules: connection state, outgoing interfaces,
address types, limits, LOG, REJECT and the like, and packets with VLAN tags, fragments, IP options or extension headers. --explain names the
rules. Counters and DSCP values are not written, nor are marks, which only the rules of the file see: where routing
or a queue asks for them, Linux needs their rules too.

Static NAT is compiled without connections: -d ADDRESS [-p tcp|udp --dport PORT] -j DNAT --to-destination ADDRESS[:PORT] maps packets to the
new destination, and the source of what comes back; -s, --sport and SNAT --to-source the other way round. Attach the object to both
interfaces. Other NAT needs Linux's connection tracking and is an error.

A file that is malformed is an error with its line, column and word; then nothing is written.`,
		Example: `  iptables-save | shunt compile - --hook xdp -o filter.o
  shunt compile rules.v4 --hook tc --interface eth0 --explain -o filter.o
  nft -j list ruleset | shunt compile - --list`,
		Args: between(1, 1, "RULES --hook xdp|tc -o FILE"),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	f := c.Flags()
	f.StringVar(&o.hook, "hook", "", "where the object will be attached: xdp or tc")
	f.StringVarP(&o.output, "output", "o", "", "the object to write")
	f.StringVar(&o.iface, "interface", "", "name of the interface that it will be attached to, for rules that name one")
	f.StringVar(&o.family, "family", "", "ip or ip6: who wrote a file that does not say so (default ip)")
	f.BoolVar(&o.explain, "explain", false, "say of each rule whether the object decides it, and if not, why")
	f.BoolVar(&o.list, "list", false, "list the rules as they are understood, like \"shunt show rules\"")
	f.BoolVar(&o.json, "json", false, "print what --explain or --list say as JSON")
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
	for name, values := range map[string][]string{"hook": {"xdp", "tc"}, "family": {"ip", "ip6"}} {
		c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	c.RegisterFlagCompletionFunc("interface", interfaceNames)
	return c
}

// check refuses options that cannot be meant.
func (o *compiling) check() error {
	switch {
	case o.hook != "" && o.hook != "xdp" && o.hook != "tc":
		return usagef("--hook %q is not allowed; choose one of xdp, tc", o.hook)
	case o.family != "" && o.family != "ip" && o.family != "ip6":
		return usagef("--family %q is not allowed; choose one of ip, ip6", o.family)
	case o.output == "" && !o.explain && !o.list:
		return usagef("what is it for? -o FILE writes an object, --explain and --list show the rules")
	case o.hook == "" && o.output != "":
		return usagef("say with --hook xdp or --hook tc where the object will be attached")
	case o.output == "-":
		return usagef("-o -: an object is not written to standard output, where --explain and --list print; -o ./- is a file of that name")
	case len(o.iface) > 15:
		return usagef("--interface %q: the name of an interface has 15 characters at most", o.iface)
	case o.json && o.explain == o.list:
		return usagef("--json goes with either --explain or --list")
	}
	return nil
}

func (o *compiling) run(c *cobra.Command, name string) error {
	if err := o.check(); err != nil {
		return err
	}
	text, name, err := readInput(c.InOrStdin(), name)
	if err != nil {
		return err
	}
	rules, format, err := rulefile.Parse(name, text, o.family == "ip6")
	if err != nil {
		return err
	}
	hook := compile.Hook(o.hook)
	if hook == "" {
		hook = compile.XDP
	}
	var result *compile.Result
	if o.explain || o.output != "" {
		if result, err = compile.Compile(rules, compile.Options{Hook: hook, Interface: o.iface}); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if o.output != "" {
		if err := writeObject(o.output, result.Object); err != nil {
			return err
		}
	}
	return o.tell(c.OutOrStdout(), rules, format, result)
}

func readInput(stdin io.Reader, name string) ([]byte, string, error) {
	if name == "-" {
		text, err := io.ReadAll(stdin)
		return text, "standard input", err
	}
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, name, usagef("%s: no such file", name)
	case err != nil: // a folder, no permission
		return nil, name, usagef("reading the rules: %w", err)
	}
	return text, name, nil
}

// writeObject writes a file as a whole or not at all. What is there and no file, such as /dev/null, is written into, and a link followed.
func writeObject(name string, content []byte) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = writeInto(name, content)
	} else {
		err = replaceFile(name, content)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func writeInto(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

func replaceFile(name string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		if at := new(os.PathError); errors.As(err, &at) {
			at.Path = name // the one that the user knows
		}
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// tell says what was made.
func (o *compiling) tell(out io.Writer, rules *ruleset.Ruleset, format rulefile.Format, r *compile.Result) error {
	listing := observe.Rules(&kstate.RuleReading{Ruleset: *rules}, nil, nil)
	switch {
	case o.json && o.list:
		return printJSON(out, listing)
	case o.json:
		return printJSON(out, r.Fates)
	}
	w := newScreen(out)
	if o.list {
		printRules(w, listing)
	}
	if o.explain {
		if o.list {
			fmt.Fprintln(w)
		}
		printFates(w, r)
	}
	if o.output == "" {
		return w.err
	}
	n := map[string]int{}
	for _, f := range r.Fates {
		n[f.Outcome]++
	}
	w.printf("%s: %d rules of %s compiled, %d of them static mappings; %d left to Linux, %d that accept what passes anyway, %d that no forwarded packet meets\n",
		o.output, n["compiled"]+n["mapping"], format, n["mapping"], n["linux"], n["passes"], n["unmet"])
	return w.err
}

func printFates(w *screen, r *compile.Result) {
	rows := [][]cell{heads("CHAIN", ">RULE", "OBJECT", "")}
	for _, f := range r.Fates {
		outcome := map[string]cell{"compiled": {text: "decides", sgr: green}, "linux": {text: "to Linux", sgr: yellow}, "passes": {text: "passes", sgr: green},
			"unmet": {text: "unmet", sgr: dim}, "mapping": {text: "maps", sgr: green}}[f.Outcome]
		rows = append(rows, []cell{{text: strings.Join([]string{f.Family, f.Table, f.Chain}, " ")}, number(f.Number), outcome, {text: f.Text}})
		if f.Why != "" {
			rows = append(rows, []cell{{}, {}, {}, {text: "  " + f.Why, sgr: outcome.sgr}})
		}
	}
	w.table(rows)
	if r.Unsaid > 0 {
		w.printf("beyond these, %d conditions are too wide for the object; packets that meet them go to Linux\n", r.Unsaid)
	}
}
