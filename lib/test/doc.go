// SPDX-License-Identifier: Apache-2.0

// Package libtest compares the structures of lib/include with plain twins in Go.
//
// Problem: a header that the verifier accepts can still count wrongly, lose a node or answer for another key, and nobody sees it in
// a packet rate.
//
// Mechanism: for each structure bpf/NAME.bpf.c is an XDP program that takes a script of operations from a map, does them one by
// one, and notes what each returned (bpf/harness.h). A test makes up operations (at random, and with a bias towards what hurts: full
// tables, equal keys, what is not there), does each on a twin written the plain way, and wants the same answers. Sketches,
// whose answers are estimates, are held to their published error bounds instead. Objects are compiled ahead of time into
// testdata (`go generate`), so that the same bytes run on every kernel of test/vm.
//
// Invariant: a structure without a test here is not part of the library. Nothing imports this package; a crash leaves nothing.
package libtest

//go:generate go run ./tables ../include/shunt/crc32c_table.h
//go:generate ../build.sh
