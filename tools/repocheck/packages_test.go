// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/shuntnet/shunt/"

// pkg is what the rules ask of a Go package: its comment, and what its files import, tests apart.
type pkg struct {
	documented bool
	imports    map[string]string // import path → a file that has it
}

// packages parses the whole repository's Go files, testdata apart.
func packages(t *testing.T) map[string]*pkg {
	t.Helper()
	out := map[string]*pkg{}
	for _, f := range tree(t) {
		if path.Ext(f.Path) != ".go" || strings.Contains(f.Path, "testdata/") {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), f.Path, f.Text, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := path.Dir(f.Path)
		p := out[dir]
		if p == nil {
			p = &pkg{imports: map[string]string{}}
			out[dir] = p
		}
		if syntax.Doc != nil {
			p.documented = true
		}
		if strings.HasSuffix(f.Path, "_test.go") {
			continue
		}
		for _, spec := range syntax.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			p.imports[to] = f.Path
		}
	}
	return out
}

// TestPackageComments: a package opens with its reason.
func TestPackageComments(t *testing.T) {
	for dir, p := range packages(t) {
		if !p.documented {
			t.Errorf("package %s has no package comment: problem, mechanism, invariant, callers, what a crash leaves", dir)
		}
	}
}

// mayImport lists, for the stages of the pipeline, which packages of this module they may use. The
// arrow points the way of the import: kstate → model ← graph ← synth ← control → datapath.
var mayImport = map[string][]string{
	"internal/reason":           {},
	"internal/model":            {"internal/reason", "internal/model/ruleset"},
	"internal/model/ruleset":    {},
	"internal/rules":            {"internal/model/ruleset"},
	"internal/rulefile":         {"internal/model/ruleset", "internal/kstate/nftables", "internal/kstate/xtables"},
	"internal/rules/classbench": {"internal/model/ruleset", "internal/rules"},
	"internal/rules/image":      {"internal/model/ruleset", "internal/rules"},
	"internal/compile":          {"internal/bpfobj", "internal/model/ruleset", "internal/rules", "internal/rules/image"},
	"internal/bpfobj":           {},
	"internal/kstate":           {"internal/model", "internal/model/ruleset", "internal/reason", "internal/bpfobj", "internal/kstate/ipset", "internal/kstate/nftables", "internal/kstate/xtables"},
	"internal/kstate/nftables":  {"internal/model/ruleset", "internal/kstate/nla", "internal/kstate/xtables"},
	"internal/kstate/xtables":   {"internal/model/ruleset"},
	"internal/kstate/ipset":     {"internal/model/ruleset", "internal/kstate/nla"},
	"internal/kstate/nla":       {},
	"internal/graph":            {"internal/model", "internal/model/ruleset", "internal/reason", "internal/rules", "internal/rules/image"},
	"internal/synth":            {"internal/graph", "internal/model", "internal/reason", "internal/bpfobj", "internal/synth/specialise", "internal/model/ruleset", "internal/rules/image"},
	"internal/synth/specialise": {},
	"internal/datapath": {
		"lib/geo",
		"internal/synth", "internal/synth/specialise", "internal/graph", "internal/model", "internal/reason", "internal/bpfobj",
		"internal/model/ruleset", "internal/rules/image",
	},
	"internal/lab": {},
}

// TestImportDirections: the tree is the pipeline, and it flows one way.
func TestImportDirections(t *testing.T) {
	pkgs := packages(t)
	for _, dir := range slices.Sorted(maps.Keys(mayImport)) {
		p := pkgs[dir]
		if p == nil {
			t.Errorf("no package %s: the table in this test is out of date", dir)
			continue
		}
		for to, file := range p.imports {
			if inside, ours := strings.CutPrefix(to, module); ours && !slices.Contains(mayImport[dir], inside) {
				t.Errorf("%s: %s must not import %s", file, dir, inside)
			}
		}
	}
}

// pure are the stages that decide and do nothing.
var pure = []string{"internal/reason", "internal/model", "internal/model/ruleset", "internal/rules", "internal/rules/classbench", "internal/rules/image", "internal/rulefile", "internal/compile", "internal/graph", "internal/synth", "internal/synth/specialise"}

// io lists what only those who do something import. golang.org/x/sys/unix is not among them, since it
// is where the kernel's constants are, nor is net, for its types; netCalls finds its other uses.
var io = []string{
	"os", "os/exec", "io/ioutil", "net/http", "syscall", "time",
	"github.com/vishvananda/netlink", "github.com/vishvananda/netns",
	"github.com/mdlayher/netlink", "github.com/google/nftables", "github.com/cilium/ebpf/link", "github.com/cilium/ebpf/rlimit",
}

var netCalls = regexp.MustCompile(`\bnet\.(Dial|Listen|Lookup|Interface|File|Resolve)\w*`)

// TestPureStages: model, graph and synth can be tested without a kernel, because they never ask one.
func TestPureStages(t *testing.T) {
	pkgs := packages(t)
	for _, dir := range pure {
		if pkgs[dir] == nil {
			t.Errorf("no package %s", dir)
			continue
		}
		for to, file := range pkgs[dir].imports {
			if slices.Contains(io, to) {
				t.Errorf("%s: %s decides and does no I/O, so it must not import %s", file, dir, to)
			}
		}
	}
	for _, f := range tree(t) {
		if slices.Contains(pure, path.Dir(f.Path)) && path.Ext(f.Path) == ".go" && !strings.HasSuffix(f.Path, "_test.go") {
			if call := netCalls.Find(f.Text); call != nil {
				t.Errorf("%s: calls %s, and its stage does no I/O", f.Path, call)
			}
		}
	}
}

// attaching matches the calls of ebpf/link that attach, pin or change; kstate imports it to ask what is attached.
var attaching = regexp.MustCompile(`\blink\.(Attach|Load|New|Pin|\w+Options\{Program)\w*`)

// TestOnlyDatapathAttaches: programs get attached in one place.
func TestOnlyDatapathAttaches(t *testing.T) {
	found := false
	for dir, p := range packages(t) {
		file, uses := p.imports["github.com/cilium/ebpf/link"]
		found = found || uses && dir == "internal/datapath"
		if uses && dir != "internal/datapath" && dir != "internal/kstate" && strings.HasPrefix(dir, "internal/") {
			t.Errorf("%s: only internal/datapath attaches programs", file)
		}
	}
	for _, f := range tree(t) {
		if path.Dir(f.Path) == "internal/kstate" && path.Ext(f.Path) == ".go" && !strings.HasSuffix(f.Path, "_test.go") {
			if call := attaching.Find(f.Text); call != nil {
				t.Errorf("%s: %s, but kstate only asks", f.Path, call)
			}
		}
	}
	if !found {
		t.Error("internal/datapath does not import ebpf/link: this test looks in the wrong place")
	}
}
