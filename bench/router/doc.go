// SPDX-License-Identifier: Apache-2.0

// Command router measures shunt as a router beside Linux, beside other fast paths, and beside the floor and the ceiling of what the
// machine can do.
//
// Problem: "faster" is worth nothing without the baseline, its spread, the cases that lose, and a way to do it again.
//
// Mechanism: a suite.Suite, one section per question, one file per section.
//
// Invariant: that of package suite; what cannot be measured here is listed with the reason.
//
// Callers: `make bench-router`, `make bench-page`, and the smoke test, which runs every section in miniature. A crash leaves
// namespaces named labPID-…, which the next run sweeps.
package main
