// SPDX-License-Identifier: Apache-2.0

// Command bridge measures shunt on a Linux bridge beside Linux's own bridging.
//
// Problem: what a bridged packet costs Linux depends on what is called for it on the way (br_netfilter, connection tracking, rules of the bridge's own
// family), and what it costs shunt on whether the bridge knows its destination; one figure says nothing about the others.
//
// Mechanism: a suite.Suite, one section per question, one file per section. The line of the other suites, with a bridge in the place of the router:
// a frame sent at the source's end to the sink's address leaves there as it came.
//
// Invariant: that of the gateway's suite. Where the fast path leaves packets to Linux it is as slow as Linux by design, so lanes are open
// (suite.Lane.Open): the share of packets that it decided over stands beside each figure, and a target is not reached by packets that were not fast.
//
// Callers: `make bench-bridge`, and the smoke test, which runs every section in miniature. A crash leaves namespaces named labPID-…, which the next run sweeps.
package main
