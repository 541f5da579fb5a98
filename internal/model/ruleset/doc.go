// SPDX-License-Identifier: Apache-2.0

// Package ruleset is what netfilter does to a packet, in one language for every dialect: native nf_tables, iptables-nft
// with its xt expressions, legacy iptables and ip6tables, and ipset.
//
// Problem: the dialects differ in how a rule is stored, hardly in what it does. Reasoning about rules, classifying packets
// and explaining a verdict must not be written four times.
//
// Mechanism: a rule is a list of steps in the kernel's order; a step is a test (a header field, masked, lies in some ranges;
// a key is in a set) or an action. A test that fails ends the rule. Everything that a packet offers to a test is a Field, a
// number of at most 128 bits; interface names are numbers too (their 16 bytes), so that a wildcard is a range. The reader
// resolves what a dialect leaves implicit: `-p tcp` before `-m tcp`, the counter that every iptables rule has, the protocol
// that nft's `tcp dport` depends on.
//
// Invariant: what the reader does not understand is an Unknown step with its text, in its place and never dropped; whoever
// reaches it leaves the packet to the kernel. A Ruleset is never changed after it was handed on and holds no kernel object,
// so a crash leaves nothing. Anyone may read it concurrently.
package ruleset
