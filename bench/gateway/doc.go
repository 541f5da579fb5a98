// SPDX-License-Identifier: Apache-2.0

// Command gateway measures shunt as a firewall beside Linux's own, in all its dialects, and beside other filters.
//
// Problem: what rules cost depends on their number, kind and dialect, on which one matches, and on whether they just changed; one figure says
// nothing about the others.
//
// Mechanism: a suite.Suite, one section per question, one file per section. The same rules are written in every dialect (package-private type
// rule), so that Linux is compared with shunt over the rules that the user has, and not over ours.
//
// Invariant: that of package suite, with one difference: where the fast path does not understand rules it is as slow as Linux by design. That
// is an answer and no failure, so lanes are open (suite.Lane.Open): the share of packets that the fast path decided over stands beside each
// figure, with the reason, and a target that was reached by packets which were not fast is not reached.
//
// Callers: `make bench-gateway`, and the smoke test, which runs every section in miniature. A crash leaves
// namespaces named labPID-…, which the next run sweeps.
package main
