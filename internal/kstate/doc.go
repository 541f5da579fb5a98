// SPDX-License-Identifier: Apache-2.0

// Package kstate reads the part of the kernel that decides the fate of a forwarded packet into a model.Network, and says
// when it has to be read again.
//
// Problem: that state lies in a dozen places (rtnetlink, nf_tables, legacy tables, sysctls, BPF attachments, sockets, XFRM),
// some of which announce changes reliably, some unreliably and some not at all; and a value that is skipped because nobody
// knew it is a packet that escapes a firewall.
//
// Mechanism: a Reader subscribes to every source of events before it reads anything. An event never carries state into the
// model: it marks a part (for devices and addresses: one ifindex) as to be read again. There are two exceptions. Routes, of which
// there can be millions: their events are applied as deltas to the few routes that need care, and any doubt keeps a route
// notable until the next full read. And rules of nf_tables: if the events of all generations since the last reading are there, and speak of rules alone, and it is
// clear where each of them lies, the rules follow; in any doubt all of nf_tables is read anew. Wait collects events until they settle, Read reads the marked parts and shares the rest
// with the previous Network. A lost event (ENOBUFS) marks everything that its socket reports. What has no event (programs
// attached by BPF links, packet sockets, legacy tables written by programs that do not take the xtables lock) is found by the
// reconciliation, a Read of all parts that the caller makes periodically.
//
// All questions to the kernel go through one small interface, so that a Recorder can write them down with their answers,
// and Replay gives the same Network without privilege.
//
// Invariant: what the decoders do not know and what is not on a commented list of things without influence on forwarding
// becomes model.Unknown; what cannot be read becomes model.ReadFault; nothing is dropped silently. A Network that was handed
// out is never changed.
//
// ReadRules reads the packet filters whole, every rule and set in model/ruleset's terms; nftables, xtables and ipset below this
// package understand what the kernel says. The Network itself only has the hooks, and how many rules are behind each.
//
// Asking must not change the kernel: no table, chain or hook is created, and no module that changes packet processing is
// loaded. A subsystem that may be a module is asked only if it is loaded or built in. The exceptions are the kernel's
// read-only diagnostics (nfnetlink_hook, the sock_diag family), which a question may load.
//
// Open, Wait, Read and Close must be called on one OS thread that is locked into the wanted network namespace. Wake and Stats
// may be called from anywhere. A crash leaves nothing: sockets and watches close with the process.
package kstate
