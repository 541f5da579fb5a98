// SPDX-License-Identifier: Apache-2.0

// Package rulefile reads rules from files: what iptables-save, ip6tables-save and `nft -j list ruleset` write.
//
// Problem: rules that lie in a file, of another machine or of this one before it has them, should mean exactly what they would
// mean in the kernel; and a file that a person edited has errors, which that person wants to find.
//
// Mechanism: the file is not given a meaning of its own. Each rule is turned into what iptables or nft would hand to the kernel
// (the structs of extensions, the expressions of nf_tables), and the same code that understands what the kernel holds
// (internal/kstate/xtables and nftables) makes steps out of it. A test on the real kernel loads files, reads them back, and
// compares.
//
// Invariant: input that is well formed and not understood is a ruleset.Unknown in its place; input that is malformed is an *Error
// with its line, column and token, and then there are no rules at all. No input makes anything panic.
//
// It is pure: text in, values out. `shunt compile` calls it. A crash leaves nothing.
package rulefile
