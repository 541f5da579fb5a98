// SPDX-License-Identifier: Apache-2.0

// Package model is the network of one namespace as immutable values.
//
// Problem: what happens to a forwarded packet is decided by many parts of the kernel, each read in its own way and at its
// own time; decisions made while reading would be impossible to test and to explain.
//
// Mechanism: kstate fills one Network per settled change; everything after it (graph, synth) is a pure function of that
// value. What the kernel holds and the data path reads live (routes, neighbours) is not copied: a Network has only those
// routes that need care.
//
// Invariant: a Network is never changed after it was handed on; slices and maps in it are shared and read-only, and links that did
// not change are the same pointers in the next one. "Seen but
// not understood" is a value (Unknown), and every consumer has to treat it as "leave it to the kernel".
//
// Anyone may read a Network concurrently. It holds no kernel object, so a crash leaves nothing.
package model
