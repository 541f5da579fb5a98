// SPDX-License-Identifier: Apache-2.0

// Package measure holds how the benchmarks compare things.
//
// Problem: on a shared machine the same program is 15 % faster or slower from one minute to the next. Two figures taken one after the
// other say nothing about each other.
//
// Mechanism: variants are measured in turns, A B C A B C …; every round yields one value for each of them, and ratios are formed within a
// round, against the baseline of that very round. What is reported is the median over the rounds with its smallest and largest value.
//
// Invariant: the values of a case stay aligned: index i of every row belongs to round i. Raw values are kept, so that a page can
// always be made again from them.
//
// Callers: the suites under bench. A crash leaves nothing.
package measure
