// SPDX-License-Identifier: Apache-2.0

// Package observe turns what a control loop decided and what its data path counted into answers: status, reasons, programs, events,
// explanations.
//
// Problem: "is it fast, and if not, why?" has to be answered for each interface, family and packet, in the same words everywhere, and
// without slowing the loop that keeps the data path true.
//
// Mechanism: answers are pure functions of a control.State and of counters read between rounds; a Recorder takes each round's state
// over a channel and keeps the last ones as events, with what they changed. Explain runs the loaded program itself, so it cannot disagree
// with it, and adds from the graph what in Linux's configuration is behind the answer.
//
// Invariant: nothing here changes the data path. Any function may be called from anywhere; what touches the data path takes a
// *datapath.Datapath and belongs into control.Engine.Do. A crash leaves nothing.
package observe
