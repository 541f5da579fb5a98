// SPDX-License-Identifier: Apache-2.0

// Package docker runs a real dockerd, unmodified, beside shunt, and compares it with one that is alone.
//
// Problem: shunt promises container hosts that nothing changes but the cost. What Docker sets up (bridges, isolation between them, published ports,
// masquerade, br_netfilter) and how it changes under traffic is Docker's to say, and no imitation of it proves that.
//
// Mechanism: twin hosts, each a network namespace with a dockerd of its own in it and another namespace outside, and shunt in one of them. The same
// networks and containers are made on both, the same is asked of both (agent), and answers, counters of rules and tracked connections have to be the
// same; then the same faults under traffic. Other twins have no userland proxy, so that published ports are the rules' alone, and a stack as compose makes it. With -long
// there are pairs of hosts too, whose networks tunnels join. A churn of veths and namespaces looks for what shunt does not forget. Containers hold one static program.
//
// Invariant: dockers, containers, mounts and namespaces are gone when a test ends; what a killed run left, the next removes. The machine's own
// Docker, if it has one, is not touched: sockets, data and process files are in a folder of the run.
//
// Only tests use it. It needs root and an installed Docker (docker.io), and skips where there is none.
package docker
