// SPDX-License-Identifier: Apache-2.0

// Package daemon is `shunt run`: the engines of all served network namespaces, and the socket on which they answer.
//
// Problem: one process has to serve several network namespaces that come and go, answer questions about each while it keeps up with
// Linux, and end in a way that loses no packet.
//
// Mechanism: a member for each namespace, with an engine in a goroutine of its own and a recorder of its rounds. A watcher of /run/netns
// starts and ends members. Requests are answered from the engine's last state, or run between its rounds.
//
// Invariant: the members fail apart from each other, except that the daemon ends when the namespace that it was started in cannot be
// served. Ending goes in one order: engines, socket, folders.
//
// Callers: Run, once in a process. A crash leaves what the engines leave (pinned stubs that pass everything up) and a dead socket.
package daemon
