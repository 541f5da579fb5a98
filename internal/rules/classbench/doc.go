// SPDX-License-Identifier: Apache-2.0

// Package classbench makes rule sets and headers like those of ClassBench (Taylor and Turner, 2005), to test and to measure
// classifiers with.
//
// Problem: how fast a classifier is depends on the rules, and real ones are not published; random ones are unlike any.
//
// Mechanism: ClassBench draws rules from the structure of real filter sets, of three kinds: acl (access lists of routers), fw
// (firewalls), ipc (packet filters of hosts). This package does the same with shares of its own, written down in profiles: how often an
// address is any, a network or a host, which ports and protocols go with it. Addresses share networks, as they do in practice.
// Headers are points in the rules, so that every rule is met.
//
// Invariant: the same kind, size and seed give the same rules and headers on every machine; published figures name them.
// It has no state, and nothing that could be left behind.
package classbench
