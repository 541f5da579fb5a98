// SPDX-License-Identifier: Apache-2.0

// Package report keeps what benchmarks measured, and turns it into pages.
//
// Problem: a figure without its kernel, machine, commit and date is hearsay, and a page written by hand parts from its figures.
//
// Mechanism: results are raw values in one JSON file, section by section, each with its own provenance, since sections may be measured
// again one at a time. Pages are Markdown with SVG plots written by this package, which read well on light and dark ground.
//
// Invariant: making the same page from the same file gives the same bytes.
//
// Callers: the suites under bench. A crash while saving leaves the old file.
package report
