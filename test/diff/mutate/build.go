// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

var errStillborn = errors.New("stillborn")

// tree is a copy of the working tree that mutants are built in.
type tree struct {
	dir      string
	flags    []string          // for clang, as the Makefile has them
	original map[string][]byte // programs of the compiled objects, to see whether a change changes anything
	objects  map[string][]byte // the objects themselves
}

// copyTree copies what git knows, and what it does not ignore, to a temporary folder.
func copyTree() (*tree, error) {
	dir, err := os.MkdirTemp("", "shunt-mutants-")
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command("sh", "-c", "git ls-files -co --exclude-standard -z | tar --null -T - -c | tar -x -C "+dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copying the tree: %w: %s", err, out)
	}
	t := &tree{dir: dir, original: map[string][]byte{}, objects: map[string][]byte{}}
	arch, err := exec.Command("uname", "-m").Output()
	if err != nil {
		return nil, err
	}
	t.flags = clangFlags(dir, strings.TrimSpace(string(arch)))
	if out, err := exec.Command("go", "test", "-c", "-o", filepath.Join(dir, "rig"), "./test/diff").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the rig: %w: %s", err, out)
	}
	if err := t.link(filepath.Join(dir, "base")); err != nil {
		return nil, err
	}
	for _, o := range objects {
		if err := t.compile(o); err != nil {
			return nil, err
		}
		if t.original[o], err = t.text(o); err != nil {
			return nil, err
		}
		if t.objects[o], err = os.ReadFile(t.object(o)); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// clangFlags are those of the Makefile, but that a mutant may have warnings.
func clangFlags(dir, arch string) []string {
	bpf := filepath.Join(dir, "bpf")
	return []string{
		"-O2", "-g", "-Wall", "-Wno-unused-parameter", "-Wno-sign-compare", "-mcpu=v3", "-target", "bpfel", "-I" + bpf + "/third_party/libbpf", "-I" + bpf + "/include", "-I" + bpf,
		"-I" + dir + "/lib/include", "-I/usr/include/" + arch + "-linux-gnu", "-fdebug-prefix-map=" + dir + "=.",
	}
}

var objects = []string{"xdp", "tc", "xdpgeneric", "tcgeneric", "guard"}

func (t *tree) object(name string) string {
	return filepath.Join(t.dir, "internal/bpfobj", name+"_bpfel.o")
}

// compile builds one object as bpf2go does; the Go side of it does not change with a mutant.
func (t *tree) compile(name string) error {
	hook, generic := strings.CutSuffix(name, "generic")
	args := append(append([]string{}, t.flags...), "-c", filepath.Join(t.dir, "bpf/hook", hook+".bpf.c"), "-o", t.object(name))
	if generic {
		args = append(args, "-DSHUNT_GENERIC")
	}
	if out, err := exec.Command("clang-19", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", errStillborn, firstLine(out))
	}
	return nil
}

// text is the program code of an object, without debug information that a line's text changes.
func (t *tree) text(name string) ([]byte, error) {
	return exec.Command("llvm-objdump-19", "-d", "--no-show-raw-insn", t.object(name)).Output()
}

// build makes the binary of a mutant. The tree is as it was afterwards.
func (t *tree) build(m mutant, bin string) error {
	path := filepath.Join(t.dir, m.File)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	defer os.WriteFile(path, text, 0o644)
	lines := strings.Split(string(text), "\n")
	if lines[m.Line-1] != m.Before {
		return fmt.Errorf("%s is not what the mutant was made from", m.File)
	}
	lines[m.Line-1] = m.After
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		return err
	}
	if strings.HasPrefix(m.File, "bpf/") {
		changed, used := false, objects
		switch {
		case strings.Contains(m.File, "xdp"):
			used = []string{"xdp", "xdpgeneric"}
		case strings.Contains(m.File, "tc") || strings.Contains(m.File, "skb"):
			used = []string{"tc", "tcgeneric"}
		case strings.HasPrefix(m.File, "bpf/node"):
			used = []string{"xdp", "tc", "xdpgeneric", "tcgeneric"}
		}
		if *aboutFlag { // which only some of the programs are asked for
			used = slices.DeleteFunc(slices.Clone(used), func(o string) bool { return !meetsAbout(m, o) })
		}
		defer func() {
			for _, o := range objects {
				os.WriteFile(t.object(o), t.objects[o], 0o644)
			}
		}()
		for _, o := range used {
			if err := t.compile(o); err != nil {
				return err
			}
			now, err := t.text(o)
			if err != nil {
				return err
			}
			changed = changed || !bytes.Equal(now, t.original[o])
		}
		if !changed {
			return fmt.Errorf("%w: the compiled code is the same", errStillborn)
		}
	}
	return t.link(bin)
}

// meetsAbout says whether the cases about a named bug meet an object.
func meetsAbout(m mutant, object string) bool {
	for _, f := range first {
		if strings.HasPrefix(m.File, f.prefix) {
			return object == "guard" || object == aboutHook(f.hooks)+map[string]string{"generic": "generic"}[f.tier]
		}
	}
	return true
}

func (t *tree) link(bin string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "./cmd/shunt")
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", errStillborn, firstLine(out))
	}
	return nil
}

func firstLine(out []byte) string {
	for _, line := range strings.Split(string(out), "\n") {
		if strings.Contains(line, "error") || strings.Contains(line, ".go:") {
			return line
		}
	}
	return strings.TrimSpace(string(out))
}
