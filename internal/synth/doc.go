// SPDX-License-Identifier: Apache-2.0

// Package synth turns a graph into a plan: which program, frozen with which configuration, runs at which hook of which
// device, and what the shared tables hold.
//
// Problem: the data path should contain what this configuration needs and nothing else, and a change should touch as little
// as possible: tables where only data changed, one program where structure did.
//
// Mechanism: named passes, each a function of the graph and the model: egress tables, VLAN inputs, local addresses, notable routes,
// programs. A plan is a comparable value; the data path applies the difference to the plan in force, and ports and tables that Next found as they were are the
// same values in both. What only the running kernel knows
// (addresses of guard words) stays symbolic here.
//
// Invariant: pure and deterministic; equal inputs give equal plans, whichever plan was before.
package synth
