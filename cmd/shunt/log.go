// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	logWaiting = 1024        // lines that wait for whoever reads the log; later ones are lost
	logLast    = time.Second // how long the end waits for them
)

// logQueue stands between the daemon and its log, which may take nothing for a while, or never again: a pipe whose reader hangs, a terminal that was stopped (Ctrl-S), a full disk behind a service
// manager. A loop that waited for that would give no sign of life, and could not even be told to stop.
type logQueue struct {
	lines chan logLine
	lost  atomic.Int64
}

// logLine is a line, or the question whether all before it are written.
type logLine struct {
	text    []byte
	written chan struct{}
}

// newLogQueue writes to w; lost tells it how many lines were.
func newLogQueue(w io.Writer, lost func(lines int64)) *logQueue {
	q := &logQueue{lines: make(chan logLine, logWaiting)}
	go func() {
		for line := range q.lines {
			if line.written != nil {
				close(line.written)
				continue
			}
			w.Write(line.text) // where that fails nobody is left to be told
			if n := q.lost.Swap(0); n > 0 {
				lost(n)
			}
		}
	}()
	return q
}

// Write takes a line in. It never waits.
func (q *logQueue) Write(line []byte) (int, error) {
	select {
	case q.lines <- logLine{text: bytes.Clone(line)}:
	default:
		q.lost.Add(1)
	}
	return len(line), nil
}

// flush waits until what was logged is written, for a while.
func (q *logQueue) flush() {
	late := time.After(logLast)
	written := make(chan struct{})
	select {
	case q.lines <- logLine{written: written}:
	case <-late:
		return
	}
	select {
	case <-written:
	case <-late:
	}
}

// logger writes to w as the configuration says, and waits for nobody; flush is for the end.
func (c *config) logger(w io.Writer) (log *slog.Logger, flush func()) {
	level := map[string]slog.Level{"debug": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError}[c.LogLevel.text]
	to := func(w io.Writer) *slog.Logger {
		o := &slog.HandlerOptions{Level: level}
		if c.LogFormat.text == "json" {
			return slog.New(slog.NewJSONHandler(w, o))
		}
		return slog.New(slog.NewTextHandler(w, o))
	}
	direct := to(w)
	q := newLogQueue(w, func(lines int64) { direct.Warn("lines of this log were lost, since nobody took them", "lines", lines) })
	return to(q), q.flush
}
