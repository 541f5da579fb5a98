// SPDX-License-Identifier: Apache-2.0

// Command overlay measures shunt on nodes whose pods reach each other by tunnels, beside Linux alone.
//
// Problem: a packet from a pod to one of another node takes the way through a host four times: bridge, route and rules, tunnel, the outer packet, and all that
// again at the other end. What shunt wins there is a matter of whole nodes, and what the wire between them costs is none of its business.
//
// Mechanism: a suite.Suite. Two nodes in namespaces with pods on both, set up as Flannel, the bridge plugin of CNI and kube-proxy do it (cluster.go has their
// commands and rules), one shunt for each node; real sockets in pods, measured by turns. Sockets on the nodes themselves show the limit.
//
// Invariant: that of the other suites: the same configuration on every variant, and rounds that something else spoiled are repeated.
//
// Callers: `make bench-overlay`, and the smoke test, which runs every section in miniature. A crash leaves namespaces named labPID-…, which the next run sweeps.
package main
