// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/shuntnet/shunt/internal/api"
)

// count is what a rule or policy counted.
type count struct{ packets, bytes uint64 }

// counters gives those of all rules of iptables, by table, chain and place: what Linux counted, and beside shunt what that has counted and Linux was
// not told.
func (h *host) counters() map[string]count {
	h.Helper()
	out := map[string]count{}
	for _, table := range []string{"filter", "nat"} {
		saved, err := h.iptables("iptables-save", "-c", "-t", table)
		if err != nil {
			h.Fatal(err)
		}
		number := map[string]int{}
		for line := range strings.Lines(saved) {
			var packets, bytes uint64
			f := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, ":") && len(f) == 3:
				fmt.Sscanf(f[2], "[%d:%d]", &packets, &bytes)
				out[table+" "+f[0][1:]+" policy"] = count{packets, bytes}
			case strings.HasPrefix(line, "[") && len(f) > 2:
				fmt.Sscanf(f[0], "[%d:%d]", &packets, &bytes)
				number[f[2]]++
				out[fmt.Sprintf("%s %s %d", table, f[2], number[f[2]])] = count{packets, bytes}
			}
		}
	}
	if h.shunt == nil {
		return out
	}
	var rules api.Rules
	h.shunt.json(&rules, "show", "rules")
	add := func(key string, fast *api.Fast) {
		if fast != nil {
			c := out[key]
			out[key] = count{c.packets + fast.Packets, c.bytes + fast.Bytes}
		}
	}
	for _, t := range rules.Tables {
		for _, c := range t.Chains {
			if t.Family != "ip" {
				continue
			}
			add(t.Name+" "+c.Name+" policy", c.Fast)
			for _, r := range c.Rules {
				add(fmt.Sprintf("%s %s %d", t.Name, c.Name, r.Number), r.Fast)
			}
		}
	}
	return out
}

// iptables runs a program of iptables as dockerd finds it: with the host's PATH.
func (h *host) iptables(args ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"--net=" + h.ns.Path(), "env"}, args...)...)
	cmd.Env = h.environ
	out, err := cmd.CombinedOutput()
	return string(out), said(err, out)
}

// since gives what was counted between two readings, as text to compare.
func since(before, after map[string]count) map[string]string {
	out := map[string]string{}
	for key, c := range after {
		if d := (count{c.packets - before[key].packets, c.bytes - before[key].bytes}); d != (count{}) {
			out[key] = fmt.Sprintf("%d packets, %d bytes", d.packets, d.bytes)
		}
	}
	return out
}

var (
	// What depends on the moment: the time that is left, users of the entry, ports that the kernel chose.
	untimely  = regexp.MustCompile(`^ipv4 +2 (\w+) +\d+ \d+ (.*?) mark=.*$`)
	ephemeral = regexp.MustCompile(`port=([0-9]+)`)
	identity  = regexp.MustCompile(` id=[0-9]+`)
)

// connections gives the tracked connections of the host's namespace, each as often as it is there. Loopback and Docker's own are left out.
func (h *host) connections() map[string]string {
	h.Helper()
	table, err := h.ns.Output("cat /proc/net/nf_conntrack")
	if err != nil {
		h.Skipf("this kernel does not list connections: %v", err)
	}
	times := map[string]int{}
	for line := range strings.Lines(table) {
		m := untimely.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || strings.Contains(line, "127.0.0.") {
			continue
		}
		entry := m[1] + " " + ephemeral.ReplaceAllStringFunc(identity.ReplaceAllString(m[2], ""), func(p string) string {
			if n, _ := strconv.Atoi(p[5:]); n >= 32768 {
				return "port=*"
			}
			return p
		})
		if m[1] == "udp" { // assured is what went on for two seconds, as it does when the first datagram waits for ARP
			entry = strings.TrimSuffix(entry, " [ASSURED]")
		}
		times[entry]++
	}
	out := map[string]string{}
	for entry, n := range times {
		out[entry] = fmt.Sprint(n)
	}
	return out
}

// differences compares what two hosts said.
func differences(linux, beside map[string]string) (out []string) {
	for key, want := range linux {
		if got, ok := beside[key]; !ok {
			out = append(out, fmt.Sprintf("%s: Linux says %q, with shunt nothing", key, want))
		} else if got != want {
			out = append(out, fmt.Sprintf("%s: Linux says %q, with shunt %q", key, want, got))
		}
	}
	for key, got := range beside {
		if _, ok := linux[key]; !ok {
			out = append(out, fmt.Sprintf("%s: Linux says nothing, with shunt %q", key, got))
		}
	}
	slices.Sort(out)
	return out
}
