// SPDX-License-Identifier: Apache-2.0

// Command mutate breaks shunt in many small ways, one at a time, and counts how many of them the differential rig notices.
//
// Problem: a rig that never fails may be one that cannot.
//
// Mechanism: lines of the data path (bpf/node, bpf/include, bpf/hook) and of the decisions behind it (internal/synth, internal/graph)
// are changed mechanically by the operators in operators.go: comparisons flipped, constants off by one, checks removed, fields
// swapped, statements dropped; named.go adds bugs that anybody could make. A sample spread over files and operators, drawn by a seed, is built in a copy of the tree and handed to
// the rig's binary: the cases written by hand that are about that file, until one fails, some generated ones of a fixed seed, and all cases on demand (attack.go). The case that failed
// has to pass without the mutant to count. Verdicts go to a journal that is only added to, so that an interrupted run loses nothing.
//
// A mutant is killed when a case fails, stillborn when it does not compile or leaves the compiled code as it was, and otherwise survives. Survivors are to be argued
// (argued.go), or to be killed by a new case.
//
// It needs root, clang-19 and Go. A crash leaves a folder in the temporary directory, and what the rig leaves.
package main
