// SPDX-License-Identifier: Apache-2.0

// Package packet turns a packet's description into a frame, and a frame into a description.
//
// Problem: a person who asks what happens to a packet thinks "udp 10.0.0.1:53 > 10.2.0.9:4000", a program wants bytes.
//
// Mechanism: Parse reads the grammar below; Description.Frame composes a frame that a correct sender would have sent, lengths and checksums
// included, except for what the description breaks on purpose. Hex is taken as it is. Describe goes the other way, for any bytes.
//
//	PACKET  = HEX | PROTO [ADDR[:PORT] > ADDR[:PORT]] [OPTION]...
//	PROTO   = udp | tcp | icmp | icmp6 | arp | ip
//	ADDR    = 10.0.0.1 | fd00::1 | [fd00::1] (brackets where a port follows)
//	OPTION  = NAME=VALUE | NAME, see Options
//
// Invariant: no I/O, no state; the same description and address give the same bytes. Any function may be called from anywhere.
package packet
