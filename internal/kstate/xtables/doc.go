// SPDX-License-Identifier: Apache-2.0

// Package xtables understands what iptables and ip6tables keep in the kernel: the blob of a legacy table, and the matches and
// targets of the extensions, which iptables-nft puts into rules of nf_tables too.
//
// Problem: an extension is a C struct whose meaning is in the kernel's module and in the user's library; and some answer in
// unexpected ways for packets that lack what they ask for.
//
// Mechanism: Match and Target turn a struct, by its extension's name and revision, into steps and into the words that
// iptables-save would print. DecodeTable walks a legacy blob. What a match answers for a packet without the field (a
// fragment without ports, a packet without connection) is written into the steps.
//
// Invariant: an extension, revision, flag or struct size that is not understood becomes a ruleset.Unknown in its place, never
// nothing. Every offset is checked: no bytes, however broken, make anything panic.
//
// There is no I/O and no state; any goroutine may use it. A crash leaves nothing.
package xtables
