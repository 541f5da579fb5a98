// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// save writes the results of all verdicts.
func save(j *journal, possible int) error {
	path := *outFlag
	if path == "" {
		path = "bench/results/mutants-" + output("uname", "-r") + ".txt"
	}
	text := results(j, possible)
	fmt.Print(text)
	if err := os.MkdirAll("bench/results", 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// results is the page about all verdicts: counts first, then survivors with what there is to say of them, then the killed.
func results(j *journal, possible int) string {
	var b strings.Builder
	sets := map[bool][]verdict{}
	commits, seeds, days := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, key := range j.order {
		v := j.last[key]
		sets[v.named()] = append(sets[v.named()], v)
		commits[v.Commit], days[v.Run.Format("2006-01-02")] = true, true
		if !v.named() {
			seeds[fmt.Sprint(v.Seed)] = true
		}
	}
	fmt.Fprintf(&b, "Mutants of the data path and of its decisions, tested by the differential rig (make mutants; test/diff/mutate).\n")
	fmt.Fprintf(&b, "commits %s, kernel %s, %s\n", names(commits), output("uname", "-r"), names(days))
	fmt.Fprintf(&b, "sample: seeds %s of %d possible mutants; a case kills when it fails (a difference: in two runs), and passes without the mutant\n", names(seeds), possible)
	if !*allFlag {
		fmt.Fprintf(&b, "Lines about VLAN, VRF and bond devices, and about other kernels' ways, are left out: this kernel cannot reach them.\n")
	}
	b.WriteString("\n")
	for _, named := range []bool{false, true} {
		title := map[bool]string{false: "sample", true: "named bugs"}[named]
		fmt.Fprintf(&b, "%-12s%s\n", title, counts(sets[named]))
	}
	for _, named := range []bool{true, false} {
		title := map[bool]string{false: "sample", true: "named bugs"}[named]
		for _, f := range []struct{ fate, title string }{
			{survived, "survived every case that was tried"}, {undecided, "not decided within the limit"}, {killed, "killed"}, {stillborn, "stillborn: not compiled, or to the same code"},
		} {
			section(&b, title+": "+f.title, f.fate, sets[named])
		}
	}
	return b.String()
}

func counts(list []verdict) string {
	n := map[string]int{}
	argued := 0
	for _, v := range list {
		n[v.Fate]++
		if v.Fate == survived && argument(v.mutant) != "" {
			argued++
		}
	}
	open := n[survived] - argued
	decided := n[killed] + open
	return fmt.Sprintf("%d tested: %d killed, %d change nothing that can be seen (argued below), %d survived otherwise, %d not decided; %d stillborn besides. Found of those that can be seen: %d of %d, %.1f %%",
		n[killed]+n[survived]+n[undecided], n[killed], argued, open, n[undecided], n[stillborn], n[killed], decided, 100*float64(n[killed])/float64(max(1, decided)))
}

func section(b *strings.Builder, title, fate string, list []verdict) {
	list = slices.DeleteFunc(slices.Clone(list), func(v verdict) bool { return v.Fate != fate })
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s (%d)\n", title, len(list))
	for _, v := range list {
		switch v.Fate {
		case killed:
			fmt.Fprintf(b, "  %-30s %s\n", v.By, v.mutant)
		case survived:
			why := argument(v.mutant)
			if why == "" {
				why = "NOT FOUND"
			}
			fmt.Fprintf(b, "  %s [%s]\n      %s\n", v.mutant, v.Reached, why)
		default:
			fmt.Fprintf(b, "  %s\n", v.mutant)
		}
	}
}

func names(set map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), ", ")
}

func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
