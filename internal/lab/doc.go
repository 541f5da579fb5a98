// SPDX-License-Identifier: Apache-2.0

// Package lab builds small virtual networks, puts packets on their wires and
// looks at what comes out. The demo, the tests and the benchmarks share it.
//
// # Problem
//
// shunt promises the kernel's own results, so the kernel is its oracle: nearly
// every test needs a real router, real interfaces and exact control over each
// byte that enters and leaves, many times over, in parallel, and without a
// trace afterwards.
//
// # Mechanism
//
// A [Topology] is a value: nodes joined by links. [Build] turns it into network
// namespaces (usable with `ip netns`) and veth pairs. Line and Star return the
// two topologies that nearly every test wants, as values that may be amended.
//
// Frames are bytes. [Packet] composes them from gopacket layers and fills in
// what a correct sender would; the edits in edit.go then break exactly one
// thing each. A frame enters a port in one of two ways, and the difference
// matters to a fast path:
//
//   - [Port.Send] transmits through a packet socket: the receiver gets an
//     sk_buff, as from a container, a VM or a local process;
//   - [Wire.Send] transmits as an XDP frame: the receiver gets a page in its
//     NAPI poll, as a NIC driver does.
//
// [Port.Capture] records what arrives, with VLAN tags put back in place.
// [Generator], [Sink] and [Meter] do the same at millions of packets per second
// for the benchmarks: a program that makes the packets inside the kernel, one
// that counts them, and a reading of what a packet cost.
//
// # Invariants
//
// Nothing here touches the namespace that the process started in. Every
// namespace a test makes carries the process's id in its name, so that parallel
// runs cannot meet, and [Sweep] can tell what a killed run left behind.
// Interface numbers and MAC addresses follow from the topology alone: two
// builds of one value are twins, down to the bytes on their wires.
//
// # Callers
//
// Any package of this module outside the data path: tests, bench, demo. It
// needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF) and imports
// nothing else of shunt.
//
// # What a crash leaves
//
// Namespaces under /run/netns, and with them their interfaces and the programs
// attached to these. The next [Sweep], or `ip netns delete`, removes all of it.
package lab
