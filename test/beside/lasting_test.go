// SPDX-License-Identifier: Apache-2.0

package beside

import "testing"

func TestLasting(t *testing.T) {
	type answers [2]string
	for name, c := range map[string]struct {
		said []answers // the last one goes on
		want int
	}{
		"equal":                      {[]answers{{"a", "a"}}, 0},
		"equal when asked again":     {[]answers{{"a", "b"}, {"a", "a"}}, 0},
		"differs each time":          {[]answers{{"a", "b"}}, 1},
		"each gives the other's":     {[]answers{{"a", "b"}, {"b", "a"}}, 0},
		"one gives what nobody gave": {[]answers{{"a", "b"}, {"b", "c"}}, 1},
	} {
		n := 0
		_, lasting, first := Lasting(func() (linux, beside map[string]string) {
			a := c.said[min(n, len(c.said)-1)]
			n++
			return map[string]string{"q": a[0], "same": "x"}, map[string]string{"q": a[1], "same": "x"}
		})
		if len(lasting) != c.want || (len(first) > 0) != (c.said[0][0] != c.said[0][1]) {
			t.Errorf("%s: lasting %q, first %q; want %d", name, lasting, first, c.want)
		}
	}
	_, lasting, _ := Lasting(func() (linux, beside map[string]string) { return map[string]string{}, map[string]string{"q": "a"} })
	if len(lasting) != 1 {
		t.Errorf("an answer that only one gives: %q", lasting)
	}
}
