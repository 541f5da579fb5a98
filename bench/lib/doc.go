// SPDX-License-Identifier: Apache-2.0

// Bench-lib measures the function library (lib/include) and writes docs/bench-lib.md.
//
// Problem: a library of fast blocks is worth what it saves in a whole program, against what people write without it; figures for blocks
// alone, or for less work done, say nothing.
//
// Mechanism: each operation is written the common way, the best plain way and with the library, in the same loop over the same random words,
// and run by BPF_PROG_TEST_RUN; what all computed is read back and compared. In user space the same headers, and the processor's own
// instructions where it has them, give the native figure. Each network function is a whole XDP program on the receiving end of a
// veth; its cost is the run time of that device's NAPI thread per packet, its floor a program that reads the packet and drops it.
//
// Invariant: variants of a case take turns (bench/measure), and a variant that did not do the work is an error and no figure.
package main

//go:generate ../../lib/build.sh
