// SPDX-License-Identifier: Apache-2.0

// Package nftables understands the messages of nf_tables: tables, chains, rules, sets, objects and flow tables.
//
// Problem: a rule of nf_tables is a program for a small register machine. What a user wrote as `ip saddr 10.0.0.0/8 tcp dport
// 80-90` arrives as loads into registers, masks, comparisons of bytes and lookups; the libraries at hand skip in silence what
// they do not know, so that a rule looks simpler than it is.
//
// Mechanism: decoders turn messages into structs, Dump collects them, and Translate runs each rule's expressions on symbols: a
// register holds "these bits of that header" until a comparison makes a test of a field out of it. What a rule has tested
// before (the protocol of the network header, of the transport header) decides what a later load means.
//
// Invariant: an expression, attribute, key or bit that is not understood becomes a ruleset.Unknown in its place, or the
// Unknown of its set or chain, with what is known of it. No bytes, however broken, make anything panic.
//
// There is no I/O and no state; any goroutine may use it, a Dump by one at a time. A crash leaves nothing.
package nftables
