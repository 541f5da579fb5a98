// SPDX-License-Identifier: Apache-2.0

// Package api is what the daemon and the command line say to each other, over a unix socket in the runtime directory.
//
// Problem: a person or script asks a running daemon questions; either end may be of another version, may be killed in the middle of
// a sentence, or may have left a dead socket behind.
//
// Mechanism: one connection carries one request and its replies, each a line of JSON. A request names its protocol version,
// the verb, and the network namespace. A reply carries data or an error with a kind; the last one says so, hence a connection that
// ends without it is a daemon that died, never a short answer. Streams (monitor) send several replies before the last.
//
// Invariant: the socket is accessible to its owner only (mode 0600); whoever can open it may control shunt. Listen never takes the
// socket from a daemon that answers. Fields of the data are added, never renamed.
//
// Server and Client may be used from any goroutine. A crash leaves a socket file that the next Listen replaces.
package api
