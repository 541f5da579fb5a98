// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/daemon"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
)

func newRun(g *global) *cobra.Command {
	var file string
	var once bool
	given := defaults()
	c := &cobra.Command{
		Use:   "run",
		Short: "start the daemon",
		Long: `Read how Linux is configured, make forwarding faster where that is safe, and follow every change until stopped.

Nothing has to be configured. Stopping (SIGINT, SIGTERM, SIGHUP unless nohup has it ignored, "shunt stop") leaves the XDP stubs attached, which pass everything to Linux, so
that a new daemon loses no packet; "shunt stop --detach" removes those too. The daemon needs CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN.

It serves the network namespace that it is started in, and with --netns those named ones under /run/netns that match, as they come and go; a pattern with a folder is about files there.

A configuration file has the options' names as keys:

    interfaces = ["eth*", "wan0"]
    hook = "auto"
    log-level = "info"`,
		Example: `  shunt run
  shunt run --interfaces 'eth*,wan0' --hook tc
  nsenter --net=/run/netns/dut shunt run --runtime-dir /run/shunt-dut
  shunt run --netns 'qrouter-*'
  shunt run --netns '/run/docker/netns/1-*'`,
		Args: noArgs,
	}
	f := c.Flags()
	f.StringVar(&file, "config", "", "configuration file in TOML; options given here override it")
	given.options(f)
	f.BoolVar(&once, "once", false, "set everything up, print the status, take everything away again and end")
	completes(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if file == "" && f.Changed("config") { // a script's empty variable: what the file says must not be missed in silence
			return usagef("--config: \"\" is no file")
		}
		conf, err := configured(file, given, f)
		if err != nil {
			return err
		}
		log, flush := conf.logger(c.ErrOrStderr())
		defer flush()
		o := daemon.Options{
			RuntimeDir: g.runtimeDir,
			Policy:     graph.Policy{Hook: conf.Hook.text, Strict: conf.Strict, Include: plain(conf.Interfaces), Exclude: plain(conf.Exclude), Wires: strings.Fields(os.Getenv(wires))},
			Netns:      plain(conf.Netns), Once: once, Metrics: conf.Metrics.text, Watchdog: conf.Watchdog.limit, Version: version(), Log: log,
		}
		if o.Tier, err = onlyTier(); err != nil {
			return err
		}
		if conf.RuntimeDir.text != "" && !c.Flags().Changed("runtime-dir") {
			o.RuntimeDir = conf.RuntimeDir.text
		}
		signal.Ignore(syscall.SIGPIPE) // who reads the log or the status may go (`| head`): that must not end the daemon, least of all out of order
		w := newScreen(c.OutOrStdout())
		if once {
			o.Ready = func(s *api.Status) { printStatus(w, s) }
		}
		if err := daemon.Run(c.Context(), o); err != nil {
			return err
		}
		return w.err
	}
	return c
}

// wires is what names the veths that auto takes for cards, for tests (docs/rig.md): else none of their ports ever has programs at both hooks.
const wires = "SHUNT_WIRES"

// onlyTier is the one tier of programs that is to run, or that there are to be both from the start, for tests (docs/rig.md); "" is what the daemon chooses.
func onlyTier() (datapath.Tier, error) {
	switch t := datapath.Tier(os.Getenv("SHUNT_TIER")); t {
	case "", datapath.Generic, datapath.Specialised, datapath.Both:
		return t, nil
	default:
		return "", fmt.Errorf("SHUNT_TIER is %q, none of %s, %s, %s", t, datapath.Generic, datapath.Specialised, datapath.Both)
	}
}

// configured is the configuration of the file, if any, overridden by the options that were given.
func configured(file string, given *config, set *pflag.FlagSet) (*config, error) {
	if file == "" {
		return given, nil
	}
	conf, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	conf.override(given, set)
	return conf, nil
}
