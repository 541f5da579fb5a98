// SPDX-License-Identifier: Apache-2.0

// Package beside is what tests share that run somebody else's programs, unmodified, with shunt beside them and without.
//
// Problem: Docker and Flannel are compared the same way: twin hosts, the same questions, answers that have to be the same words.
//
// Mechanism: the daemon as a user runs it and what it holds; the program that is asked and asks (agent); counters of rules with shunt's part; folders of runs,
// which say whose processes are whose.
//
// Invariant: what a run started is gone when it ends; what a killed run left, the next sweeps away.
//
// Only tests use it. They need root.
package beside
