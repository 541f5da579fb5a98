// SPDX-License-Identifier: Apache-2.0

package libtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newestClang is the compiler of `make generate`.
const newestClang = "clang-19"

func needCompiler(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no %s here: sudo scripts/setup.sh generate installs it", name)
	}
}

// compileText compiles a source as build.sh does, without writing an object unless the options say where, and returns what the compiler said.
func compileText(clang, source string, options ...string) (string, error) {
	machine, err := exec.Command("uname", "-m").Output()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(clang, slices.Concat([]string{"-target", "bpfel", "-mcpu=v3", "-O2", "-Wall", "-Wextra", "-Werror",
		"-Wno-unused-parameter", "-Wno-sign-compare", "-I../include", "-I../../bpf/third_party/libbpf",
		"-I/usr/include/" + strings.TrimSpace(string(machine)) + "-linux-gnu",
		"-o", "/dev/null"}, options, []string{"-x", "c", "-c", "-"})...)
	cmd.Stdin = strings.NewReader(source)
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// headers are the names of the library's headers.
func headers(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../include/shunt/*.h")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no headers: %v", err)
	}
	for i, path := range paths {
		paths[i] = filepath.Base(path)
	}
	return paths
}

// TestHeaders: each header can be included alone, and all of them in one program in any order, in each of the three memories.
func TestHeaders(t *testing.T) {
	if os.Getenv("SHUNT_VM") != "" {
		t.Skip("there are no headers in here")
	}
	needCompiler(t, newestClang)
	headersCompile(t, newestClang)
}

func headersCompile(t *testing.T, clang string) {
	t.Helper()
	all := headers(t)
	memories := []string{"SHUNT_MAP_VALUE", "SHUNT_OBJECTS"} // the first is what there is without a word
	if clang == newestClang {
		memories = append(memories, "SHUNT_ARENA")
	}
	check := func(memory string, names ...string) {
		source := ""
		for _, name := range names {
			source += "#include <shunt/" + name + ">\n"
		}
		t.Run(memory, func(t *testing.T) {
			t.Parallel()
			if said, err := compileText(clang, source, "-fsyntax-only", "-D"+memory); err != nil {
				t.Errorf("%s: %v\n%s", strings.Join(names, ", "), err, said)
			}
		})
	}
	for i, memory := range memories {
		for _, name := range all {
			if i == 0 || slices.Contains([]string{"pool.h", "list.h", "tree.h"}, name) {
				check(memory, name)
			}
		}
		check(memory, all...)
		backwards := slices.Clone(all)
		slices.Reverse(backwards)
		check(memory, backwards...)
	}
}

// A size is one that works and those beside it that cannot.
type size struct {
	header string
	use    string // with %s for the sizes
	good   string
	bad    map[string]string // and a part of what the compiler has to say
}

var sizes = []size{
	{"hash.h", `int NAME(__u64 h) { return shunt_hash_word(h, 1, %s); }`, "24", map[string]string{"0": "1 to 24 bits", "25": "1 to 24 bits"}},
	{"cms.h", `void NAME(__u32 *c, __u64 h, __u32 n) { shunt_cms_add(c, %s, h, 1); }`, "16, 24", map[string]string{
		"17, 10": "1 to 16 rows", "0, 10": "1 to 16 rows", "4, 30": "2^1 to 2^24 columns", "4, 0": "2^1 to 2^24 columns", "n, 10": "known when it is compiled"}},
	{"cms.h", `int NAME(__u32 *c, __u64 h) { return shunt_cms_get(c, %s, h); }`, "1, 1", map[string]string{"17, 10": "1 to 16 rows"}},
	{"cms.h", `int NAME(__u32 *c, __u64 h) { return shunt_cms_add_conservative(c, %s, h, 1); }`, "8, 10", map[string]string{"4, 25": "1 to 16 rows"}},
	{"nitro.h", `int NAME(struct shunt_nitro *n) { return shunt_nitro_takes(n, %s); }`, "8", map[string]string{"9": "1 to 8 rows", "0": "1 to 8 rows"}},
	{"nitro.h", `void NAME(struct shunt_nitro *n, const struct shunt_geo *g, __s32 *c, __u64 h) { shunt_nitro_update(n, g, c, %s, h); }`, "8, 24",
		map[string]string{"17, 10": "1 to 8 rows", "0, 10": "1 to 8 rows", "4, 30": "up to 2^24 columns"}},
	{"nitro.h", `int NAME(const __s32 *c, __u64 h) { return shunt_nitro_get(c, %s, h); }`, "5, 12", map[string]string{"9, 12": "1 to 8 rows"}},
	{"hkeeper.h", `int NAME(struct shunt_hk_slot *s, __u64 *r, __u64 h) { return shunt_hk_add(s, %s, r, h); }`, "4, 24",
		map[string]string{"17, 10": "1 to 4 rows", "0, 10": "1 to 4 rows", "2, 30": "up to 2^24 slots"}},
	{"hkeeper.h", `int NAME(struct shunt_hk_slot *s, __u64 h) { return shunt_hk_get(s, %s, h); }`, "1, 0", map[string]string{"5, 10": "1 to 4 rows"}},
	{"topk.h", `struct NAME_key { __u64 a; }; SHUNT_TOPK(NAME, struct NAME_key, %s)`, "64", map[string]string{"0": "16, 32, 48 or 64", "80": "16, 32, 48 or 64", "20": "16, 32, 48 or 64"}},
	{"topk.h", `struct NAME_key { %s; }; SHUNT_TOPK(NAME, struct NAME_key, 16)`, "__u64 a", map[string]string{"__u32 a": "multiple of 8", "": "multiple of 8"}},
	{"cuckoo.h", `struct NAME_key { __u64 a; }; SHUNT_CUCKOO(NAME, struct NAME_key, __u32, %s)`, "20", map[string]string{"21": "2^0 to 2^20", "-1": "2^0 to 2^20"}},
	{"cuckoo.h", `struct NAME_key { %s; }; SHUNT_CUCKOO(NAME, struct NAME_key, __u32, 1)`, "__u64 a", map[string]string{"__u32 a": "multiple of 8"}},
	{"pool.h", `struct NAME_node { struct shunt_node node; }; struct NAME { SHUNT_NODES(struct NAME_node, %s); };`, "1 << 20",
		map[string]string{"1": "2 to 2^20", "1 << 21": "2 to 2^20", "3": "power of two"}},
	{"bucket.h", `SHUNT_BUCKETS(NAME, %s);`, "1, 1 << 24", map[string]string{"3, 8": "power of two", "1, 1": "2 to 2^24", "1 << 25, 8": "2 to 2^24"}},
	{"bucket.h", `int NAME(struct shunt_buckets *b) { return shunt_bucket_push(b, %s, 0, 1); }`, "2, 4", map[string]string{"3, 4": "1 to 2^24 lists", "2, 5": "2 to 2^24 nodes"}},
	{"skiplist.h", `SHUNT_SKIPLIST(NAME, %s);`, "1 << 20", map[string]string{"1": "2 to 2^20", "1 << 21": "2 to 2^20", "100": "power of two"}},
	{"skiplist.h", `int NAME(struct shunt_skip *s, __u32 n) { return shunt_skip_lower(s, %s, 5); }`, "64", map[string]string{"100": "2 to 2^20 nodes", "1": "2 to 2^20 nodes", "n": "known when"}},
	{"chain.h", `int NAME(void *l, __u32 *list) { return shunt_chain_remove(l, %s, 1, list); }`, "1, 1 << 30", map[string]string{"0, 8": "power of two", "12, 8": "power of two", "8, 0": "power of two", "8, 12": "power of two"}},
	{"ffsqueue.h", `SHUNT_FFSQ(NAME, %s)`, "4, 1 << 24", map[string]string{"0, 8": "1 to 4 levels", "5, 8": "1 to 4 levels", "1, 1 << 25": "2^24 handles", "1, 9": "power of two"}},
	{"wheel.h", `SHUNT_WHEEL(NAME, %s)`, "12, 40, 1 << 24", map[string]string{"5, 9, 8": "2^6 to 2^12", "13, 9, 8": "2^6 to 2^12", "6, 41, 8": "2^0 to 2^40", "6, 9, 9": "power of two"}},
	{"bloom.h", `SHUNT_BLOOM(NAME, %s)`, "31, 16", map[string]string{"5, 7": "2^6 to 2^31", "32, 7": "2^6 to 2^31", "20, 0": "1 to 16 bits", "20, 17": "1 to 16 bits"}},
	{"bloom.h", `SHUNT_BLOOM_BLOCKED(NAME, %s)`, "31, 7", map[string]string{"8, 7": "2^9 to 2^31", "20, 8": "1 to 7 bits"}},
	{"cuckoofilter.h", `SHUNT_CUCKOOFILTER(NAME, %s)`, "24", map[string]string{"25": "2^0 to 2^24", "-1": "2^0 to 2^24"}},
	{"htss.h", `SHUNT_HTSS(NAME, %s)`, "20", map[string]string{"21": "2^0 to 2^20", "-1": "2^0 to 2^20"}},
	{"maglev.h", `int NAME(const __u16 *t, __u32 n, __u64 h) { return shunt_maglev(t, %s, h); }`, "65537", map[string]string{"2": "3 to 2^24", "1 << 25": "3 to 2^24", "n": "known when"}},
}

// sizeless are the headers that have no size to choose.
var sizeless = []string{"accel.h", "bits.h", "crc32c.h", "crc32c_table.h", "def.h", "flow.h", "hash8.h", "list.h", "match.h", "rand.h", "tree.h"}

// TestSizes: a size that cannot work does not compile, and the compiler says why; one at the edge that can, does.
func TestSizes(t *testing.T) {
	if os.Getenv("SHUNT_VM") != "" {
		t.Skip("there are no headers in here")
	}
	needCompiler(t, newestClang)
	for _, name := range headers(t) {
		sized := slices.ContainsFunc(sizes, func(s size) bool { return s.header == name })
		if sized == slices.Contains(sizeless, name) {
			t.Errorf("%s has to be either in sizes or in sizeless", name)
		}
	}
	source := func(s size, name, of string) string {
		return "#include <shunt/" + s.header + ">\n" + strings.ReplaceAll(strings.ReplaceAll(s.use, "NAME", name), "%s", of) + "\n"
	}
	var good string
	for i, s := range sizes {
		good += source(s, "use"+string(rune('a'+i)), s.good)
		for bad, want := range s.bad {
			t.Run(s.header, func(t *testing.T) {
				t.Parallel()
				said, err := compileText(newestClang, source(s, "use", bad))
				if err == nil {
					t.Errorf("%s compiles with %q", s.use, bad)
				} else if !strings.Contains(said, "error: ") || !strings.Contains(said, want) {
					t.Errorf("%s with %q: want %q in\n%s", s.use, bad, want, said)
				}
			})
		}
	}
	if said, err := compileText(newestClang, good); err != nil {
		t.Errorf("sizes that work: %v\n%s", err, said)
	}
}
