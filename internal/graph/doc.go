// SPDX-License-Identifier: Apache-2.0

// Package graph turns the model of a network into a packet-processing graph per attach point.
//
// Problem: a packet may take the fast path only if every subsystem that it would meet in Linux is understood; the answer
// depends on the ingress device, on everything stacked on it, on the family, and on every device that it could leave by.
//
// Mechanism: Build looks at each device on its own (can it be attached to, by which hook; can it be entered from another), then at
// each logical interface reached through it (untagged, or by VLAN tags), then at each family there. Each of these is fast
// or carries the reasons why not. Nothing is decided by default: a device kind, rule, qdisc or attribute that is not in a
// list of understood ones is a reason.
//
// Files: build (order), device (kind, stack), hooks (what is hooked into a device), ability (XDP in and out), family, rules and
// netfilter (per family), egress and ports (description), carry (what stays from the last graph), choose (hooks), nodes and special (the fast path).
//
// A Memo keeps what was made of rules and of devices: what rests on nothing that changed is the same value in the next graph (carry). It may leave large rule sets to a Compilation, which the caller runs wherever it likes; until the Memo has its
// result, the graph leaves their packets to Linux.
//
// Invariant: pure and deterministic; equal models give equal graphs, but for what a Memo does not have yet. An edge with no reason is fast, an edge with a reason
// is never fast. A graph is never changed after it was handed on.
package graph
