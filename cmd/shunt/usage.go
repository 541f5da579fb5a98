// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// optionError says what is wrong with an option as a person wrote it, in other words than Go's.
func optionError(c *cobra.Command, err error) error {
	lists := fmt.Sprintf("`%s --help` lists the options", c.CommandPath())
	var missing *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	var bad *pflag.InvalidValueError
	switch {
	case errors.As(err, &missing):
		name := "--" + missing.GetSpecifiedName()
		if missing.GetSpecifiedShortnames() != "" {
			name = "-" + missing.GetSpecifiedName()
		}
		return usagef("unknown option %s; %s", name, lists)
	case errors.As(err, &bare):
		f := bare.GetFlag()
		return usagef("--%s needs a value: %s; %s", f.Name, f.Usage, lists)
	case errors.As(err, &bad):
		return usagef("--%s: %w; %s", bad.GetFlag().Name, valueError(bad), lists)
	}
	return usagef("%w; %s", err, lists)
}

// valueError is why a value cannot be meant; options of our own types say so themselves.
func valueError(bad *pflag.InvalidValueError) error {
	switch bad.GetFlag().Value.Type() {
	case "bool":
		return fmt.Errorf("%q is neither true nor false", bad.GetValue())
	case "int":
		return fmt.Errorf("%q is no number of a usual size; write it like 20", bad.GetValue())
	case "duration":
		return fmt.Errorf("%q is no time; write it like 2s or 500ms", bad.GetValue())
	}
	return bad.Unwrap()
}

// unknownCommand refuses a word that is none of a command's own commands, and names those that are like it.
func unknownCommand(c *cobra.Command, word string) error {
	meant := ""
	if like := c.SuggestionsFor(word); len(like) > 0 {
		meant = "; did you mean " + strings.Join(like, " or ") + "?"
	}
	return usagef("unknown command %q%s; `%s --help` lists them", word, meant, c.CommandPath())
}
