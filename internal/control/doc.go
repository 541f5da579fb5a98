// SPDX-License-Identifier: Apache-2.0

// Package control is the loop: event, settle, read, graph, plan, apply.
//
// Problem: Linux changes at any time, in bursts, while packets flow; what the data path does must follow within milliseconds and never be
// half of an old and half of a new configuration.
//
// Mechanism: one goroutine for each network namespace, locked to an OS thread inside it. A round takes the guard's snapshot, reads
// what events have marked as changed, computes graph and plan as pure values and applies the difference. Between rounds the loop
// beats the watchdog (only after every event socket is drained), serves requests from the API on the same thread, and once a second
// reconciles what raises no event. Rule sets of thousands of rules are compiled on another goroutine; what it makes is taken in by a later round, if the
// rules are still those.
//
// Invariant: the data path is never told "current" for anything that was read before the guard's snapshot. When a round fails, the data path
// is switched off and the next round starts from zero.
//
// Callers: New, Run in one goroutine, everything else from anywhere. A crash leaves what datapath leaves.
package control
