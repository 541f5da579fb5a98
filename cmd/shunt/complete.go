// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// strict makes the commands that the library adds, help and completion, refuse words that they do not know: it answers those with the general help
// and status 0.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if _, unknown, err := root.Find(args); err != nil || len(unknown) > 0 {
					return usagef("no help about %q; `shunt --help` lists the commands", strings.Join(args, " "))
				}
				return nil
			}
		case "completion":
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
			c.Args = func(_ *cobra.Command, args []string) error {
				if len(args) > 0 {
					return usagef("no completion for %q; there is one for bash, fish, powershell and zsh", args[0])
				}
				return nil
			}
			for _, shell := range c.Commands() {
				shell.Args = noArgs
			}
		}
	}
}

// checkHelp makes --help beside a word that is none of a command's own commands what the word alone is, wrong usage, and not the general help. What it refused is there once the
// command has run.
func checkHelp(root *cobra.Command) (refused *error) {
	refused = new(error)
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if words := c.Flags().Args(); c.HasSubCommands() && len(words) > 0 {
			*refused = c.ValidateArgs(words)
			return
		}
		help(c, args)
	})
	return refused
}

// completes registers what the values of options can be; options that a command lacks are left out.
func completes(c *cobra.Command) {
	fixed := func(values ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	interfaces := func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return interfaceNames(c, nil, word)
	}
	for option, values := range map[string]cobra.CompletionFunc{
		"hook": fixed("auto", "xdp", "tc"), "log-level": fixed("debug", "info", "warn", "error"), "log-format": fixed("text", "json"),
		"interfaces": interfaces, "exclude": interfaces, "netns": netnsNames,
	} {
		if c.Flags().Lookup(option) != nil {
			c.RegisterFlagCompletionFunc(option, values)
		}
	}
}

// netnsNames completes names of network namespaces.
func netnsNames(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	entries, _ := os.ReadDir("/run/netns")
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
