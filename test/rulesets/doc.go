// SPDX-License-Identifier: Apache-2.0

// Package rulesets holds packet filters as they are in real life, and says which part of their traffic is fast.
//
// Problem: a classifier that is exact and flat serves nobody if the rule sets that people have send their traffic to Linux all the same: by a rule that
// only the kernel can evaluate, in the wrong place.
//
// Mechanism: testdata has what real packages of Debian made, saved by iptables-save, nft and ipset, each with its version (fixtures.go); the ClassBench-like
// sets are made from a seed. A test loads each into a router of its own, reads it back, and asks rules.Flatten about typical traffic (traffic.go):
// connections through the router, new ones in both directions, and sources that are banned. The same packets are sent through the router with shunt on it, by
// hosts that open the connections themselves, and the data path's counters say by which exit they left it (router.go). `make rulesets` does so with all rule
// sets at both hooks and writes the page, docs/rulesets.md; without -update only some are sent, and the rest of the page is what the last full run kept in testdata/sent.json.
//
// Invariant: everything follows from the files and seeds, so that the page changes only with them, with what rules are understood, or with what the data path does; the test fails when the page is not up to date.
//
// Only tests use it. It needs root; a crash leaves a namespace, which the next run of any test removes.
package rulesets
