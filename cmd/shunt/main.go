// SPDX-License-Identifier: Apache-2.0

// Command shunt is a transparent fast path for Linux networking: the daemon (`shunt run`) and the verbs that ask it.
//
// Exit status: 0 done, 1 failed, 2 wrong usage, 3 not supported here, 4 no daemon. Answers go to stdout, everything else to stderr.
package main

//go:generate env UPDATE_MAN=1 go test -count=1 -run TestManPagesAreCurrent .

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/check"
	"github.com/shuntnet/shunt/internal/model"
)

// Exit statuses, a contract with scripts.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnsupported = 3
	exitNoDaemon    = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// endings are the signals that end a command in order. SIGHUP comes when a terminal is lost; nohup has it ignored, which stays so.
func endings() []os.Signal {
	out := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		out = append(out, syscall.SIGHUP)
	}
	return out
}

// run is main without the process: it executes a command line and gives the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	strict(root)
	refused := checkHelp(root)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = *refused
	}
	if err == nil {
		return 0
	}
	code, shown := status(err)
	if shown {
		for line := range strings.Lines("shunt: " + err.Error()) { // may quote a name that a stranger gave
			fmt.Fprintln(stderr, model.Printable(strings.TrimSuffix(line, "\n")))
		}
	}
	return code
}

// usageError is a command line that cannot be meant.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// silentError ends with a status and says nothing more, where the output already did.
type silentError struct{ code int }

func (silentError) Error() string { return "" }

// status is the exit status for an error, and whether the error is to be shown.
func status(err error) (code int, show bool) {
	var silent silentError
	var usage usageError
	var remote *api.Error
	switch {
	case errors.As(err, &silent):
		return silent.code, false
	case errors.As(err, &usage):
		return exitUsage, true
	case errors.Is(err, check.ErrUnsupported):
		return exitUnsupported, true
	case errors.As(err, &remote):
		if code, known := map[api.Kind]int{api.KindUsage: exitUsage, api.KindUnsupported: exitUnsupported, api.KindNoDaemon: exitNoDaemon}[remote.Kind]; known {
			return code, true
		}
	}
	return exitFailed, true
}

// newRoot builds the command tree.
func newRoot() *cobra.Command {
	g := &global{}
	root := &cobra.Command{
		Use:   "shunt",
		Short: "a transparent fast path for Linux networking",
		Long: `shunt makes Linux forward packets faster and changes nothing else: it reads how Linux is configured, loads eBPF programs that do exactly
that, and leaves every packet that they do not fully understand to Linux.

"shunt run" is the daemon; the other commands ask it. All of them find it by --runtime-dir.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 not supported here, 4 no daemon.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Args:              noArgs,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.Version = version()
	root.SetVersionTemplate(versionLine())
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if err := new(folder).Set(g.runtimeDir); err != nil {
			return usagef("--runtime-dir: %w", err)
		}
		return nil
	}
	root.SetFlagErrorFunc(optionError)
	root.SuggestionsMinimumDistance = 2
	f := root.PersistentFlags()
	f.StringVar(&g.runtimeDir, "runtime-dir", "/run/shunt", "where the daemon keeps its socket and attachments")
	root.AddCommand(newRun(g), newStatus(g), newShow(g), newExplain(g), newCompile(), newCheck(), newPause(g), newResume(g), newStop(g),
		newMonitor(g), newTop(g), newVersion())
	return root
}

// global are the options of every command.
type global struct{ runtimeDir string }

// asking are the options of the commands that ask the daemon.
type asking struct {
	*global
	netns string
	json  bool
}

func (a *asking) client() *api.Client { return &api.Client{RuntimeDir: a.runtimeDir, Netns: a.netns} }

// options adds them to a command; withJSON for those that print an answer.
func (a *asking) options(c *cobra.Command, withJSON bool) *cobra.Command {
	c.Flags().StringVar(&a.netns, "netns", "", "named network namespace, of those that the daemon serves (default: the one it was started in)")
	completes(c)
	if withJSON {
		c.Flags().BoolVar(&a.json, "json", false, "print the answer as JSON")
	}
	return c
}

func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !c.HasParent() && args[0] == "bench" {
		return usagef("benchmarks come with the sources, for they need peers and a quiet machine: `make bench-router`, `make bench-gateway` and the others that bench/README.md lists")
	}
	if !c.HasParent() {
		return unknownCommand(c, args[0])
	}
	return usagef("%s takes no arguments, not even %q", c.CommandPath(), args[0])
}

// between accepts min to max arguments.
func between(min, max int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < min || len(args) > max {
			return usagef("usage: %s %s", c.CommandPath(), what)
		}
		return nil
	}
}

// interfaceName is a name as a request can hold it, which has to be UTF-8.
func interfaceName(arg string) string {
	if utf8.ValidString(arg) {
		return arg
	}
	return model.PrintableName(arg)
}

// interfaceNames completes the first argument of commands that take an interface, in the shell's network namespace.
func interfaceNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if all, err := net.Interfaces(); err == nil && len(args) == 0 {
		for _, i := range all {
			names = append(names, i.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
