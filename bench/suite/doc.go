// SPDX-License-Identifier: Apache-2.0

// Package suite is what the programs under bench share: a router to measure, ways to measure it, and the frame around both.
//
// Problem: the router's figures and the gateway's must be taken in the same way, or they cannot be put side by side.
//
// Mechanism: a Suite is a list of Sections, one for each question, run one after the other; each section's raw values are kept as soon as it
// is done, failed sections as incomplete, and the page is made from the kept values alone. A section builds Lanes, lines of namespaces that
// each hold one Variant (Linux, shunt at a hook, a peer), and lets them measure in turns. Beside throughput there are single packets (Prober),
// runs of a program by hand (Runner), round trips over wires (Reflect, Bounce) and sockets (PingPong).
//
// Invariant: a lane that claims to be fast has its counters read after each measurement; a measurement of shunt in which less than 99 % of the
// packets left as the lane says is repeated and then an error, not a figure. A section that uses up its time begins nothing more and says what it left out.
//
// Callers: bench/router and bench/gateway. A crash leaves namespaces named labPID-…, which the next run sweeps.
package suite
