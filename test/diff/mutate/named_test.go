// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

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
