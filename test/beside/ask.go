// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/shuntnet/shunt/internal/lab"
)

// Ask has the agent, or ping, ask something from a namespace and gives the answer in a line. Addresses in it become their owners' names.
func Ask(from *lab.NS, agent, words string, owners map[netip.Addr]string) string {
	args := strings.Fields(words)
	if args[0] == "ping" {
		args = slices.Concat([]string{"--net=" + from.Path(), "ping", "-q", "-n", "-c", "3", "-i", "0.02", "-W", "1", "-w", "2"}, args[1:])
		out, _ := exec.Command("nsenter", args...).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "packets transmitted") { // without how often an unanswered ping repeats, and "time …ms"
				if _, after, _ := strings.Cut(line, "transmitted, "); strings.HasPrefix(after, "0 received") {
					return "nothing received"
				}
				line, _, _ = strings.Cut(line, ", time")
				return line
			}
		}
		return named(owners, strings.TrimSpace(string(out)))
	}
	out, err := exec.Command("nsenter", append([]string{"--net=" + from.Path(), agent}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return named(owners, strings.TrimSpace(string(out)))
}

// named puts owners' names in the place of addresses.
func named(owners map[netip.Addr]string, said string) string {
	words := strings.FieldsFunc(said, func(r rune) bool { return strings.ContainsRune(" \t\n,()=", r) })
	for _, w := range words {
		w = strings.TrimSuffix(w, ":")
		if a, err := netip.ParseAddr(w); err == nil && owners[a.Unmap()] != "" {
			said = strings.ReplaceAll(said, w, owners[a.Unmap()])
		}
	}
	return said
}

// AskAll asks many things at once, those that move much one after the other. Questions have names.
func AskAll(questions []string, ask func(question string) string) map[string]string {
	out := map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	large := make(chan struct{}, 1)
	for _, q := range questions {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if strings.Contains(q, "000") {
				large <- struct{}{}
				defer func() { <-large }()
			}
			answer := ask(q)
			mu.Lock()
			defer mu.Unlock()
			out[q] = answer
		}()
	}
	wg.Wait()
	return out
}
