// SPDX-License-Identifier: Apache-2.0

// Package image compiles what rules mean into bytes that the data path looks packets up in.
//
// Problem: rules change often and must then be in force at once, and a lookup must not cost more with more rules. Code for each rule set
// would have to be verified and loaded; data takes effect with one store.
//
// Mechanism: the entries of a rules.Program that belong to one stage (before or after the route) are written one behind the other, called
// lists behind the main one, each list with an entry at its end that everything satisfies. For each dimension that entries ask for
// (addresses, ports, protocol, interfaces) a table leads from the packet's value to a row of bits, one for each entry; the rows are and-ed, and
// the entries that are left come out in order. Of hundreds of entries trees lead to the few that a packet may satisfy instead (tree.go). An entry's record says what to count and where to go on. Conditions that no row knows
// are a few operations of the record. bpf/node/rules.h reads all of it; the layout is described there and in layout.go.
//
// Invariant: for every packet an image gives the verdict, the counters and the mark of its program, or leaves the packet to Linux. What the
// image cannot express becomes an entry at its place that does so; it is never left out.
//
// Everything here is a pure function of immutable values. An image speaks of counters by their number in Image.Counters; who installs it
// puts slots in their place. A crash leaves nothing.
package image
