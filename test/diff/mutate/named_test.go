// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Mutants are compiled as everything is: a folder of headers that only the Makefile knows would make every mutant stillborn.
func TestFlagsAreThoseOfTheMakefile(t *testing.T) {
	text, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile(`-I\$\((?:BPF_DIR|CURDIR)\)\S*`).FindAllString(string(text), -1)
	if len(wanted) < 4 {
		t.Fatalf("the Makefile's flags are not where they were: %q", wanted)
	}
	flags := clangFlags("/d", "x86_64")
	for _, w := range wanted {
		if w = strings.NewReplacer("$(BPF_DIR)", "/d/bpf", "$(CURDIR)", "/d").Replace(w); !slices.Contains(flags, w) {
			t.Errorf("mutants are compiled without %s", w)
		}
	}
}

// A named bug whose line has gone would silently not be tested any more, nor would those with it.
func TestNamedBugsHaveTheirLines(t *testing.T) {
	t.Chdir("../../..")
	*allFlag = true
	list, err := namedMutants()
	if err != nil {
		t.Error(err)
	}
	for _, m := range list {
		if m.Before == m.After {
			t.Errorf("%s changes nothing", m.Operator)
		}
	}
}
