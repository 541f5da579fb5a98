// SPDX-License-Identifier: Apache-2.0

// Package specialise rewrites a compiled eBPF program for one frozen configuration, before it is loaded.
//
// Problem: nodes are compiled ahead of time with every feature in them, switched by constants in read-only data. The verifier would
// prune what is switched off, but only after it has copied, checked and explored it, at 1.3 to 2.5 µs per instruction; maps
// and kernel types that only dead code uses would still have to exist; and loads of frozen constants survive in what is left.
//
// Mechanism: Run lowers the instructions of one program to functions of basic blocks, then repeats named passes until nothing changes:
//
//	fold        forward constant propagation along executable edges; loads of read-only data, arithmetic and branches on
//	            known values are replaced by their result
//	reach       blocks and functions that nothing reaches are dropped
//	thread      jumps to jumps, and conditions whose two ways meet at once, are dropped
//	dead        pure instructions whose result nobody reads, and stores to stack slots nobody reads, are dropped
//	fuse        neighbours of which the later only moves on what the earlier made become one
//	split       who comes from where a condition's outcome is known is led around it
//	layout      blocks follow each other where that saves a jump
//
// Invariant: the result computes what the input computes with these contents of the read-only maps, for every packet and every
// map state. What is not understood (indirect jumps, unknown opcodes, jumps between functions) leaves the whole program
// as it was, and Stats.Untouched says why. Values that loading decides (CO-RE relocations, kconfig, ksyms, map pointers) are never
// treated as known. Symbols, references, BTF function and line information and relocations stay with their instructions; a function's
// symbol moves on when its first instruction goes.
//
// What the passes leave is also as easy for the verifier as the input: registers are never renamed and checks never moved, because the verifier
// ties what a check proves to the register it was made on.
//
// Run is pure: no I/O, input not modified, equal input gives equal output. Any number of goroutines may call it. There is nothing
// that a crash could leave behind.
package specialise
