// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"github.com/shuntnet/shunt/internal/control"
)

// config is what `shunt run` can be told, by options or by a file whose keys have the same names.
type config struct {
	RuntimeDir folder   `toml:"runtime-dir"`
	Interfaces []glob   `toml:"interfaces"`
	Exclude    []glob   `toml:"exclude"`
	Hook       hook     `toml:"hook"`
	Netns      []glob   `toml:"netns"`
	Strict     bool     `toml:"strict"`
	Metrics    address  `toml:"metrics"`
	Watchdog   patience `toml:"watchdog"`
	LogLevel   logLevel `toml:"log-level"`
	LogFormat  format   `toml:"log-format"`
}

func defaults() *config {
	return &config{Hook: hook{"auto"}, Watchdog: patience{control.WatchdogLimit}, LogLevel: logLevel{"info"}, LogFormat: format{"text"}}
}

// options adds an option for each key but runtime-dir, which all commands have.
func (c *config) options(f *pflag.FlagSet) {
	f.Var((*globList)(&c.Interfaces), "interfaces", "only these interfaces may be accelerated; GLOB or names, separated by commas (default: all)")
	f.Var((*globList)(&c.Exclude), "exclude", "these interfaces stay with Linux; wins over --interfaces")
	f.Var(&c.Hook, "hook", "where programs run: auto, xdp or tc")
	f.Var((*globList)(&c.Netns), "netns", "serve the named network namespaces that match as well, or all; with a folder, files in it")
	f.BoolVar(&c.Strict, "strict", false, "leave TCP connections that Linux tracks to it; the fast path has to stop Linux from checking their windows")
	f.Var(&c.Metrics, "metrics", "serve metrics for Prometheus at this address, like 127.0.0.1:9464; a port alone means loopback")
	f.Var(&c.Watchdog, "watchdog", "how long the data path trusts a silent daemon before everything goes to Linux")
	f.Var(&c.LogLevel, "log-level", "debug, info, warn or error")
	f.Var(&c.LogFormat, "log-format", "text or json")
}

// readConfig reads a file over the defaults. Errors name file, line and what is allowed.
func readConfig(file string) (*config, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, usagef("reading the configuration: %w", err)
	}
	c := defaults()
	// The library tells the place of a value that cannot be read only where it is a string, so that is looked at first.
	for _, into := range []any{shape(), c} {
		if err := decode(file, raw, into); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func decode(file string, raw []byte, into any) error {
	d := toml.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var unknown *toml.StrictMissingError
	var broken *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		e := unknown.Errors[0]
		line, column := e.Position()
		return usagef("%s:%d:%d: unknown key %q; allowed are %s", file, line, column, strings.Join(e.Key(), "."), strings.Join(keys(), ", "))
	case errors.As(err, &broken):
		line, column := broken.Position()
		what, _, _ := strings.Cut(strings.TrimPrefix(broken.Error(), "toml: "), " into struct field") // which names Go's types
		return usagef("%s:%d:%d: %s%s", file, line, column, what, hint(broken.Key()))
	case err != nil:
		return usagef("%s: %w", file, err)
	}
	return nil
}

// shape is a pointer to a structure with config's keys, whose values are plain strings, lists of strings and switches.
func shape() any {
	t := reflect.TypeFor[config]()
	var fields []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		f.Type = reflect.TypeFor[string]()
		switch t.Field(i).Type.Kind() {
		case reflect.Slice:
			f.Type = reflect.TypeFor[[]string]()
		case reflect.Bool:
			f.Type = reflect.TypeFor[bool]()
		}
		fields = append(fields, f)
	}
	return reflect.New(reflect.StructOf(fields)).Interface()
}

// keys are the names of all keys.
func keys() (names []string) {
	t := reflect.TypeFor[config]()
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("toml"))
	}
	return names
}

var example = map[string]string{"runtime-dir": "/run/shunt", "hook": "auto", "metrics": "127.0.0.1:9464", "watchdog": "400ms", "log-level": "info", "log-format": "text"}

// hint shows how a key is written.
func hint(key []string) string {
	if len(key) == 0 {
		return `; a file has lines like hook = "auto" and interfaces = ["eth*", "wan0"]`
	}
	if slices.Contains([]string{"interfaces", "exclude", "netns"}, key[0]) {
		return fmt.Sprintf(`; write it like %s = ["eth*", "wan0"]`, key[0])
	}
	if key[0] == "strict" {
		return "; write it like strict = true"
	}
	return fmt.Sprintf(`; write it like %s = "%s"`, key[0], example[key[0]])
}

// override takes over what was given as an option.
func (c *config) override(given *config, set *pflag.FlagSet) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(given).Elem()
	for i, key := range keys() {
		if key != "runtime-dir" && set.Changed(key) {
			to.Field(i).Set(from.Field(i))
		}
	}
}
