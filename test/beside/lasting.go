// SPDX-License-Identifier: Apache-2.0

package beside

// Lasting asks a host without shunt and one with it, and once more if they differed: a resolution of a neighbour may time out first in the one and then in the
// other. What lasts is what differed both times, unless the two gave each other's answers the second time. first is what differed when asked first; linux are the
// last answers.
func Lasting(ask func() (linux, beside map[string]string)) (linux map[string]string, lasting, first []string) {
	before, beforeWith := ask()
	if first = Differences(before, beforeWith); len(first) == 0 {
		return before, nil, nil
	}
	linux, with := ask()
	a, b := map[string]string{}, map[string]string{}
	for question, answer := range linux {
		other, both := with[question]
		if both && answer == beforeWith[question] && other == before[question] {
			continue
		}
		a[question] = answer
		if both {
			b[question] = other
		}
	}
	for question, other := range with {
		if _, both := linux[question]; !both {
			b[question] = other
		}
	}
	return linux, Differences(a, b), first
}
