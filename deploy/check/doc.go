// SPDX-License-Identifier: Apache-2.0

// Command check renders the Helm chart and writes the manifest that is made of it; its tests lint and check both.
//
// Problem: a chart is text until a cluster reads it, and a manifest beside it says something else before long.
//
// Mechanism: Helm's own libraries load, lint and render ../helm/shunt, and its schema refuses wrong values. What comes out is read into the types of Kubernetes' API, where an
// unknown or doubled field is an error, and looked at: privileges, mounts, probes, arguments. The manifest is the rendering with defaults.
//
// Invariant: ../kubernetes/shunt.yaml is what `make manifest` writes; nobody edits it.
//
// It is a module of its own, since Helm's and Kubernetes' libraries are no part of shunt.
package main
