// SPDX-License-Identifier: Apache-2.0

// Package vectors makes a system call and tells what it did to the caller's vector registers.
//
// Problem: a kernel function that uses them without saying so to the kernel spoils those of whatever task is running, now and then and
// far away. Compilers expect nothing of these registers across a call, so Go code alone cannot see it.
//
// Mechanism: all sixteen AVX registers are filled, the system call is made, and they are read.
//
// Invariant: the kernel's promise is that what was written is read. Only tests on x86-64 import this; it keeps nothing.
package vectors

// Registers are the sixteen AVX registers.
type Registers [16][32]byte

// Across fills the registers from in, makes system call number with these arguments, and reads the registers into out. It returns what the
// kernel returned: a negative number is an error. The processor needs AVX. The scheduler does not hear of the call, so it has to be short.
//
//go:noescape
func Across(number, a, b, c uintptr, in, out *Registers) int
