// SPDX-License-Identifier: Apache-2.0

// Package repocheck holds the habits of this repository as tests.
//
// Problem: what is agreed once (licence headers, which package may import which, formatting, no
// file too long to read) erodes one harmless commit at a time.
//
// Mechanism: the tests read the working tree as text and Go syntax; nothing is built, no privilege
// is needed, and it takes about a second. What is generated or vendored is told apart by its own
// first lines and by its folder.
//
// Invariant: a rule without a test here is advice; CONTRIBUTING.md names the rules, this package
// keeps them. Nothing imports it.
package repocheck
