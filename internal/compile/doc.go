// SPDX-License-Identifier: Apache-2.0

// Package compile turns a rule set into a BPF object that works by itself: no daemon, no compiler, nothing but `ip link` or `tc`.
//
// Problem: a machine that only filters, or maps some addresses, should not need a daemon for it; and rules that are known when
// an image is built can be compiled there.
//
// Mechanism: the object's code is compiled ahead of time (bpf/hook/alone.bpf.c), from the same nodes that the daemon uses. The rules
// become an image, static NAT becomes two hash tables, and both are written into data sections of the object, which grow for
// it. Which packets are forwarded the program learns from the kernel's route lookup, so it needs no configuration of the host.
//
// Invariant: what the program cannot decide goes to Linux as it came, and Explain names the rule. NAT that is not a mapping of one
// address (and port) to another is an error, not left out. Every input gives the same object.
//
// Without a daemon nobody notices that the host's own rules change: where the file leaves packets to Linux, Linux needs the same
// rules. It is pure; `shunt compile` calls it. A crash leaves nothing.
package compile
