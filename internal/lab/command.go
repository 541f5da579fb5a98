// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
)

// Exec runs a command line inside the namespace: words separated by blanks, no
// quoting, no shell. An error carries the command and its standard error.
//
// Unlike `ip netns exec` it changes the network namespace only, so that /sys
// keeps its cgroup and bpffs mounts.
func (ns *NS) Exec(format string, args ...any) error {
	_, err := ns.Output(format, args...)
	return err
}

// Output is Exec that returns the command's standard output.
func (ns *NS) Output(format string, args ...any) (string, error) {
	line := fmt.Sprintf(format, args...)
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", fmt.Errorf("namespace %q: empty command", ns.Name)
	}
	return ns.finish(exec.Command(words[0], words[1:]...), line)
}

// Feed runs a command line as Exec does with input as its standard input, as in
// Feed("ip route add …\n…", "ip -batch -") or Feed(rules, "nft -f -").
func (ns *NS) Feed(input, format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	words := strings.Fields(line)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(input)
	_, err := ns.finish(cmd, line)
	return err
}

// Shell runs a script with `sh -e` inside the namespace: pipes, loops, quotes.
func (ns *NS) Shell(script string) error {
	_, err := ns.finish(exec.Command("sh", "-e", "-c", script), script)
	return err
}

// Start starts a prepared command inside the namespace; the caller waits for it.
// A process keeps its namespace alive after [NS.Delete]: end it first. Do not set
// SysProcAttr.Pdeathsig, which would follow the starting thread.
func (ns *NS) Start(cmd *exec.Cmd) error {
	return ns.Do(func() error {
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("starting %q in namespace %q: %w", cmd.Args, ns.Name, err)
		}
		return nil
	})
}

func (ns *NS) finish(cmd *exec.Cmd, line string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := ns.Start(cmd); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		said := strings.TrimSpace(stderr.String() + stdout.String())
		return "", fmt.Errorf("running %q in namespace %q: %w: %s", line, ns.Name, err, said)
	}
	return stdout.String(), nil
}
