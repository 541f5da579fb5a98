// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
)

// Protocol is the version that both ends must share.
const Protocol = 1

// Verb is what a request asks for.
type Verb string

// The verbs.
const (
	VerbStatus  Verb = "status"
	VerbShow    Verb = "show"
	VerbExplain Verb = "explain"
	VerbPause   Verb = "pause"
	VerbResume  Verb = "resume"
	VerbStop    Verb = "stop"
	VerbMonitor Verb = "monitor"
)

// Request is the one line that a client sends.
type Request struct {
	Protocol int             `json:"protocol"`
	Verb     Verb            `json:"verb"`
	Netns    string          `json:"netns,omitempty"` // name of the served namespace; "" is the daemon's own, or the only one
	Args     json.RawMessage `json:"args,omitempty"`  // by verb: ShowArgs, ExplainArgs, PauseArgs, StopArgs
}

// Reply is one line of an answer.
type Reply struct {
	Protocol int             `json:"protocol"`
	Data     json.RawMessage `json:"data,omitempty"`
	Error    *Error          `json:"error,omitempty"`
	Last     bool            `json:"last"` // nothing follows
}

// Kind tells what sort of failure an Error is; the command line turns it into its exit status.
type Kind string

// The kinds of failures.
const (
	KindFailed      Kind = "failed"      // the daemon tried and could not
	KindUsage       Kind = "usage"       // the request makes no sense: unknown verb, interface, namespace, packet
	KindUnsupported Kind = "unsupported" // this kernel or version cannot
	KindNoDaemon    Kind = "no-daemon"   // made by the client: nobody answers
)

// Error is a failure that crosses the socket.
type Error struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error of a kind.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{kind, fmt.Sprintf(format, args...)}
}

// asError gives any error the form in which it crosses the socket.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{e.Kind, err.Error()}
	}
	return &Error{KindFailed, err.Error()}
}

// Socket is where a daemon with this runtime directory listens.
func Socket(runtimeDir string) string { return filepath.Join(runtimeDir, "shunt.sock") }
