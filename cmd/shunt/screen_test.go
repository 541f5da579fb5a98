// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/api"
)

// full is a device on which nothing can be written, like /dev/full.
type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }

// answering is the runtime directory of a daemon that gives each verb an answer, until the test ends.
func answering(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s, err := api.Listen(api.Socket(dir), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(context.Background(), func(_ context.Context, r *api.Request, send func(any) error) (any, error) {
		face := []api.Interface{{Name: "eth0", Hook: "tc"}}
		switch {
		case r.Verb == api.VerbStatus:
			return api.Status{Version: "1", Ready: true, Interfaces: face}, nil
		case r.Verb == api.VerbExplain:
			return api.Explanation{Interface: "eth0"}, nil
		case r.Verb == api.VerbMonitor:
			return nil, send(api.Event{Changes: []string{"a link"}})
		case strings.Contains(string(r.Args), api.ShowRules):
			return api.Rules{Tables: []api.RuleTable{{Name: "filter"}}}, nil
		case strings.Contains(string(r.Args), api.ShowFlows):
			return api.Flows{}, nil
		case strings.Contains(string(r.Args), api.ShowGraph):
			return "a graph", nil
		}
		return []any(nil), nil
	})
	t.Cleanup(s.Close)
	return dir
}

// A command whose answer cannot be written fails, and those that go on until they are interrupted end.
func TestAnswersThatCannotBeWritten(t *testing.T) {
	dir, rules := answering(t), write(t, "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p tcp -j DROP\nCOMMIT\n")
	for _, line := range []string{
		"status", "status --json", "show reasons", "show programs", "show events", "show neighbours", "show interfaces", "show rules", "show sets", "show sets --json", "show reasons --all", "show graph",
		"explain eth0 udp 10.0.0.1:53 > 10.2.0.9:4000", "monitor", "monitor --json", "top --interval 100ms", "top --flows --interval 100ms", "top --flows --json --interval 100ms",
		"check", "version", "compile " + rules + " --list", "compile " + rules + " --explain",
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		args := append(strings.Fields(line), "--runtime-dir", dir)
		var told strings.Builder
		if code := run(ctx, args, full{}, &told); code != exitFailed || !strings.Contains(told.String(), errFull.Error()) {
			t.Errorf("%s: exit status %d, %q", line, code, told.String())
		}
		cancel()
	}
}

// Whoever may name chains, sets and counters in a namespace that is served does not thereby write to the terminal of who looks at them.
func TestNamesThatATerminalObeys(t *testing.T) {
	const name = "x\x1b[2J\u009b5m\nfast"
	none := uint64(0)
	reason := []api.Reason{{Reason: "link-kind", Detail: name, Input: name}}
	for what, print := range map[string]func(*screen){
		"rules": func(w *screen) {
			set := api.RuleSet{Name: name, Type: name, Trouble: name}
			printRules(w, &api.Rules{Faults: []string{name}, IPSets: []api.RuleSet{set}, Tables: []api.RuleTable{{Family: "ip", Name: name, Sets: []api.RuleSet{set}, Counters: []api.RuleCounter{{Name: name, Packets: &none, Bytes: &none}},
				Chains: []api.RuleChain{{Name: name, Hook: "ingress", Type: name, Devices: []string{name}, Trouble: []string{name}, Rules: []api.Rule{{Text: name, Trouble: []api.RuleTrouble{{Text: name}}}}}}}}})
		},
		"explain": func(w *screen) {
			printExplanation(w, &api.Explanation{Interface: name, Route: name, Changes: []string{name}, Steps: []api.ExplanationStep{{Reason: "fast", Egress: name, Because: reason}},
				Rules: &api.RuleWalk{Met: []api.RuleMatch{{Rule: name, Text: name}}, Outcome: "slow", By: name, Why: name, Assumed: name, Disagree: name}})
		},
		"status": func(w *screen) {
			printStatus(w, &api.Status{Ready: true, Netns: name, Failing: name, NoGeneric: name, Faults: []string{name}, PausedIf: []string{name}, Namespaces: []api.Namespace{{}, {Name: name, Error: name}},
				Interfaces: []api.Interface{{Name: name, Hook: "tc", Reasons: reason, Egress: reason}}})
		},
		"interfaces": func(w *screen) {
			printInterface(w, &api.Interface{Name: name, Kind: name, Bridge: &api.Bridge{Name: name}, Inputs: []api.Input{{Name: name, VLANs: []int{5}}}, Reasons: reason, Egress: reason})
		},
		"monitor": func(w *screen) {
			printEvent(w, &api.Event{Netns: name, Changes: []string{name}})
			printEvent(w, &api.Event{Netns: name, Error: name})
		},
	} {
		var out strings.Builder
		print(&screen{Writer: &out})
		if text := out.String(); !strings.Contains(text, `x\x1b[2J\xc2\x9b5m\x0afast`) || strings.ContainsAny(text, "\x1b\u009b") || strings.Contains(text, "\nfast") {
			t.Errorf("%s: %q", what, text)
		}
	}
	var told strings.Builder
	file := write(t, "*filter\n:FORWARD ACCEPT [0:0]\n-A x\x1b[2J -j DROP\nCOMMIT\n")
	if run(context.Background(), []string{"compile", file, "--list"}, io.Discard, &told) == 0 || strings.Contains(told.String(), "\x1b") {
		t.Errorf("an error: %q", told.String())
	}
}

// An empty list is a list for programs, whatever the daemon makes of it.
func TestEmptyLists(t *testing.T) {
	dir := answering(t)
	for _, what := range []string{api.ShowReasons, api.ShowPrograms, api.ShowEvents, api.ShowNeighbours} {
		var out strings.Builder
		if code := run(context.Background(), []string{"show", what, "--json", "--runtime-dir", dir}, &out, io.Discard); code != 0 || out.String() != "[]\n" {
			t.Errorf("show %s: exit status %d, %q", what, code, out.String())
		}
	}
}

// A daemon that hangs is named, with what gets rid of it.
func TestStopOfAHungDaemon(t *testing.T) {
	dir := t.TempDir()
	s, err := api.Listen(api.Socket(dir), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(context.Background(), func(ctx context.Context, _ *api.Request, _ func(any) error) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	defer s.Close()
	defer func(old time.Duration) { stopLimit = old }(stopLimit)
	stopLimit = 100 * time.Millisecond
	var told strings.Builder
	code := run(context.Background(), []string{"stop", "--detach", "--runtime-dir", dir}, io.Discard, &told)
	if want := fmt.Sprintf("did not end within 100ms; its log says why. If it hangs: kill -9 %d, then `shunt stop --detach`", os.Getpid()); code != exitFailed || !strings.Contains(told.String(), want) {
		t.Errorf("exit status %d, %q, want %q in it", code, told.String(), want)
	}
}

// NO_COLOR is about colours alone; what is no terminal, or a dumb one, gets no control sequences at all.
func TestScreen(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this kernel or container gives no pseudo-terminal (Linux 2.6.4, CONFIG_UNIX98_PTYS): tried: ", err)
	}
	defer terminal.Close()
	for _, c := range []struct {
		to              io.Writer
		noColour, term  string
		colour, inPlace bool
	}{
		{terminal, "", "xterm", true, true}, {terminal, "1", "xterm", false, true}, {terminal, "", "dumb", false, false}, {io.Discard, "", "xterm", false, false},
	} {
		t.Setenv("NO_COLOR", c.noColour)
		t.Setenv("TERM", c.term)
		if s := newScreen(c.to); s.colour != c.colour || s.inPlace != c.inPlace {
			t.Errorf("%+v: colour %t, in place %t", c, s.colour, s.inPlace)
		}
	}
}
