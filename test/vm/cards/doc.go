// SPDX-License-Identifier: Apache-2.0

// Package cards puts shunt beside real drivers of network cards.
//
// Everywhere else routers have veth pairs, which do what they are told. A driver of a card takes an XDP program or refuses it, makes queues of its own
// for what programs send, says by itself which frames it can transmit and when, strips tags, and is set up anew by commands that users give while a program runs. The machines of
// test/vm have cards of two drivers, two of each with a wire between host and router (lib/boot.sh), so what `--hook auto` makes of them is tried with packets.
//
// The tests run only inside such a machine. They move cards between namespaces; a card whose namespace is gone comes back to the first.
package cards
