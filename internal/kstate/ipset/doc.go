// SPDX-License-Identifier: Apache-2.0

// Package ipset understands the messages of the kernel's ipset.
//
// Problem: sets come in a dozen types, whose elements mean ranges of different fields, and some options change what a lookup
// does.
//
// Mechanism: a Dump takes in the messages of a list, in which a large set goes over several; Translate gives each set the
// widths of its key and each element its ranges. Rules name a set by the kernel's index.
//
// Invariant: a type, an attribute or an option that is not understood becomes the Unknown of its set, never nothing. No bytes,
// however broken, make anything panic.
//
// There is no I/O; any goroutine may use it, a Dump by one at a time. A crash leaves nothing.
package ipset
