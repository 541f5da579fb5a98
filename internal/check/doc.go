// SPDX-License-Identifier: Apache-2.0

// Package check looks at whether, and how well, shunt can work on this machine.
//
// Problem: a fast path that cannot be loaded, or that stays idle for a reason outside shunt, is best found before it is started,
// with what to do about it.
//
// Mechanism: Requirements are what `shunt run` refuses to start without; All gives the lines of `shunt check`, which includes those. Features are
// tried, not derived from the version; the version is only named in advice. What could be fast is asked of the graph, as the daemon does.
//
// Invariant: a check changes nothing; programs that it tries are closed at once. Any function may be called from anywhere and looks at the
// network namespace of the process. A crash leaves nothing.
package check
