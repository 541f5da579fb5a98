// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// Who does not read the log holds nobody up, and is told what was lost.
func TestLogThatNobodyReads(t *testing.T) {
	r, w := io.Pipe()
	log, flush := defaults().logger(w)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 2 * logWaiting {
			log.Info("line", "n", i)
		}
		flush()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the daemon waits for who reads its log")
	}
	in := bufio.NewScanner(r)
	for next, lost := 0, 0; next+lost < 2*logWaiting; {
		if !in.Scan() {
			t.Fatal(in.Err())
		}
		line := in.Text()
		if _, err := fmt.Sscanf(line[strings.LastIndex(line, " ")+1:], "lines=%d", &lost); err == nil {
			continue
		}
		if !strings.HasSuffix(line, fmt.Sprintf(" n=%d", next)) {
			t.Fatalf("line %d is %q", next, line)
		}
		next++
	}
	log.Info("the last")
	go func() { flush(); w.Close() }()
	if rest, err := io.ReadAll(r); err != nil || !strings.Contains(string(rest), "the last") {
		t.Errorf("the end of the log is %q, %v", rest, err)
	}
}
