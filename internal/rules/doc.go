// SPDX-License-Identifier: Apache-2.0

// Package rules is what a rule set means for a forwarded packet.
//
// Problem: the kernel walks rule by rule through chains, tables and hooks. A fast path needs the same verdict and the same
// counters from a lookup, and has to know which traffic can reach a rule that only the kernel can evaluate.
//
// Mechanism: three forms of the same meaning. An Interpreter follows the kernel's own steps over a ruleset.Ruleset; it is slow
// and meant to be obviously right. Flatten turns the rules that a class of traffic meets into a Program: one list of entries,
// each a conjunction of conditions with what it counts and where it leads, forward only; jumps, gotos and returns are gone,
// rules that the class cannot reach too. What only the kernel can evaluate stays in it as an entry that leaves the packet to it.
// A Classifier finds the entries that a packet satisfies without asking each of them.
//
// Invariant: for every packet of its class a Program and its Classifier give the verdict, the counters and the changed fields that
// the Interpreter gives, or are slow where it is slow; property tests and fuzzing hold the three together. What is not
// understood makes the packets slow that reach it, by the name of the rule, and no others.
//
// Everything here is a pure function of immutable values: any goroutine may call it, and a crash leaves nothing.
package rules
