// SPDX-License-Identifier: Apache-2.0

// Package bpfobj holds the compiled data path: objects built from bpf/ by clang ahead of time and committed, and the Go
// forms of the structures in bpf/types.h.
//
// Problem: nobody who builds or runs shunt should need a compiler for eBPF, and a structure that C and Go each write down for themselves is two structures one day.
//
// Mechanism: `make generate` compiles with one version of clang and writes objects and Go types side by side; the program that is specialised, and its form that finds the
// configuration in a map, come from the same sources. CI generates anew and finds that nothing changes. Beside it is what the kernel says of its own types, which
// ties the objects to it.
//
// Invariant: nothing in a file that ends in _bpfel is written by hand. Loading an object gives each caller a specification of its own; any goroutine may.
// There is nothing that a crash could leave behind.
package bpfobj

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel XDP ../../bpf/hook/xdp.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel TC ../../bpf/hook/tc.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types XDPGeneric ../../bpf/hook/xdp.bpf.c -- -DSHUNT_GENERIC
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types TCGeneric ../../bpf/hook/tc.bpf.c -- -DSHUNT_GENERIC
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types Classify ../../bpf/hook/classify.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types AloneXDP ../../bpf/hook/alone.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types AloneTC ../../bpf/hook/alone.bpf.c -- -DSHUNT_ALONE_TC
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel Stub ../../bpf/hook/stub.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -type shunt_input -type shunt_guard_word -type shunt_count -type shunt_vlan_key -type shunt_tags -type shunt_prefix4 -type shunt_prefix6 -type shunt_special -type shunt_neigh_use -type shunt_conn -type shunt_trace -type shunt_guard_query -type shunt_hooks_query -type shunt_sets -type shunt_bridges -type shunt_bridge -type shunt_onto -type shunt_called -type shunt_shown -type shunt_nat -type shunt_track -type shunt_look -type shunt_set_kind -type shunt_sets_query -type shunt_beat_query -type shunt_set_method -type shunt_set_tail -type shunt_word_value -type shunt_reason -type shunt_rpf -type shunt_peek -type shunt_kern_ctx -type shunt_word Guard ../../bpf/hook/guard.bpf.c
