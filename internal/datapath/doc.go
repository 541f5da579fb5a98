// SPDX-License-Identifier: Apache-2.0

// Package datapath puts plans into the kernel and takes them out again. It is the only user of ebpf/link.
//
// Problem: programs have to be replaced under traffic without a lost or misforwarded packet, survive the daemon's restart, and
// turn themselves off when it dies or hangs.
//
// Mechanism. XDP: a stub is attached once and its link pinned, because attaching costs RTNL for milliseconds and may reset a NIC; the
// stub tail-calls slot 0 of a PROG_ARRAY of its own, which is not pinned, so the kernel empties it when the daemon's last descriptor closes.
// TC: a tcx link, not pinned, updated in place (clsact with a stub before Linux 6.6). A plan is applied in this order: tables are made
// stricter, new programs are loaded and swapped in, tables are relaxed, guard values are committed, what is no longer needed is released.
// A failure at any step leaves what ran before, or an empty slot.
//
// Invariant: a packet is forwarded only by a program whose tables are at least as strict as its plan.
//
// Callers: one goroutine, locked to an OS thread in the network namespace (attaching and test runs act on the thread's namespace).
// A crash leaves pinned stubs with empty slots, which pass everything to Linux; Open adopts them, Detach removes them.
package datapath
