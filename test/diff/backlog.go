// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// backlogWithin bounds the wait for the backlogs: others may fill them.
const backlogWithin = 20 * time.Millisecond

// awaitBacklog waits until no processor has packets in its backlog, where socket buffers wait that enter a veth without a program: a busy machine may
// leave them there while frames that were sent later are received by another processor.
func awaitBacklog() error {
	for deadline := time.Now().Add(backlogWithin); time.Now().Before(deadline); time.Sleep(20 * time.Microsecond) {
		waiting, err := backlog()
		if err != nil || waiting == 0 {
			return err
		}
	}
	return nil
}

// backlog counts the packets in all backlogs: the twelfth column of softnet_stat (net/core/net-procfs.c).
func backlog() (waiting uint64, err error) {
	const column = 11
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return 0, fmt.Errorf("reading the backlogs: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) <= column {
			return 0, fmt.Errorf("reading the backlogs: %d columns, want more than %d", len(f), column)
		}
		n, err := strconv.ParseUint(f[column], 16, 32)
		if err != nil {
			return 0, fmt.Errorf("reading the backlogs: %w", err)
		}
		waiting += n
	}
	return waiting, nil
}
