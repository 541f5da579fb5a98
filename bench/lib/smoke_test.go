// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/shuntnet/shunt/bench/suite/suitetest"
	"github.com/shuntnet/shunt/internal/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

func TestSections(t *testing.T) {
	suitetest.Smoke(t, theSuite(), "## What it must reach", "## Where the library loses", "## What was not measured")
}

func TestSectionsAreComplete(t *testing.T) {
	suitetest.Complete(t, theSuite(), slices.Collect(maps.Keys(renderers)))
}
