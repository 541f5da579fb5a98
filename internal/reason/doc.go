// SPDX-License-Identifier: Apache-2.0

// Package reason is the closed list of answers to "why?".
//
// Problem: the data path, the graph, the command line, the metrics and the documents all have to say why a packet was not
// forwarded in the fast path, and a list kept in five places drifts apart.
//
// Mechanism: this file's table is the only source. `go generate` writes the C enum (bpf/include/reasons.h) and
// docs/reasons.md from it; a test fails when either is out of date. A code is the index of a per-CPU counter in the data
// path, so every way out has a name and a counter.
//
// Invariant: a name is never reused for another meaning; codes may move between releases because objects and daemon are
// built together and counters live no longer than the daemon.
package reason

//go:generate go run ./gen
