// SPDX-License-Identifier: Apache-2.0

// Package diff compares a Linux router that runs shunt with one that does not.
//
// # Problem
//
// shunt promises the kernel's own results for every packet and every
// configuration. No list of expectations that a person writes is long enough for
// that; but the kernel itself can be asked.
//
// # Mechanism
//
// A [Case] is a value: commands that configure a router and frames to send into
// its ports. [Run] builds the router twice from the same bytes, the second time with shunt
// beside it, gives both the same commands and frames, and compares all that leaves
// any port byte by byte, what commands answer, and the tables afterwards. Cases
// come from three places: a generator with one file per feature ([Features]), which
// mutates the configuration's own prefixes into packets; cases written by hand, one
// for each known trap; and cases that once failed, kept in testdata/regress.
//
// What a Linux twin does differently from run to run (identifiers of its own
// packets, reports that it sends unasked) is taken out by normalise and noise, and
// nothing else is. [TestPlainTwins] shows that two routers without shunt never differ.
//
// # Invariants
//
// A case depends on nothing but its own value: every run starts from new
// namespaces, with interface numbers and MAC addresses that follow from the
// topology, so a seed or a file reproduces it. Passing everything to Linux would
// also give no difference, so what had to be fast is counted too (fast.go), and
// every reason and node that exists has to be hit (coverage.go).
//
// # Callers
//
// `make diff`, `make fuzz-rig`, `make mutants`, and CI. It needs root. A crash leaves namespaces that
// the next run sweeps away, and a shunt process that ends when its namespaces do not
// matter to anybody: the rig starts it with its own process as the parent to die with.
package diff
