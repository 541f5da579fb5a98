// SPDX-License-Identifier: Apache-2.0

// Package tally keeps what the fast path counted for the counters of Linux's packet filters, and gives it back to Linux where the kernel takes it.
//
// The counters of legacy tables can be added to (IPT_SO_SET_ADD_COUNTERS), so what a Tally has of them is what Linux has not been told yet. Those of
// nf_tables cannot, by any interface: there a Tally has all that the fast path counted for as long as the rule is there, and the sum of both is true.
//
// Nothing is counted twice: what is given to Linux leaves the Tally by the same step, and a daemon that dies takes with it what it had not given, at
// most what one period counted.
//
// A table that is replaced between a reading and the addition is the danger, as Linux compares nothing but the number of entries. So the table is read right before,
// must have the entries that are meant, and no tool may hold the lock that tools change tables under. A tool without that lock could still come in
// between, for some tens of microseconds in a second; if it put other rules in the same number there, they would get one period's counts.
package tally
