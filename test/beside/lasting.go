// SPDX-License-Identifier: Apache-2.0

package beside

import "maps"

// Lasting asks a host without shunt and one with it, and up to twice more if they differed: a resolution of a neighbour may time out first in the one and then in
// the other. What lasts is what differed each time, unless over all each host gave just the answers that the other gave. first is what differed when asked first;
// linux are the last answers.
func Lasting(ask func() (linux, beside map[string]string)) (linux map[string]string, lasting, first []string) {
	const most = 3
	var with map[string]string
	given := [2]map[string]map[string]bool{{}, {}}
	differed := map[string]int{}
	for try := range most {
		linux, with = ask()
		found := Differences(linux, with)
		if try == 0 {
			first = found
		}
		if len(found) == 0 {
			return linux, nil, first
		}
		for i, said := range []map[string]string{linux, with} {
			for question, answer := range said {
				if given[i][question] == nil {
					given[i][question] = map[string]bool{}
				}
				given[i][question][answer] = true
			}
		}
		for question := range union(linux, with) {
			if a, b := pick(linux, question), pick(with, question); a != b {
				differed[question]++
			}
		}
	}
	a, b := map[string]string{}, map[string]string{}
	for question, n := range differed {
		if n == most && !maps.Equal(given[0][question], given[1][question]) {
			if v, ok := linux[question]; ok {
				a[question] = v
			}
			if v, ok := with[question]; ok {
				b[question] = v
			}
		}
	}
	return linux, Differences(a, b), first
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

type said struct {
	answer string
	given  bool
}

func pick(answers map[string]string, question string) said {
	answer, given := answers[question]
	return said{answer, given}
}
