// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

var values = cmp.AllowUnexported(hook{}, patience{}, logLevel{}, format{}, address{}, folder{}, glob{})

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shunt.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfig(t *testing.T) {
	got, err := readConfig(write(t, `
# where the cards are
interfaces = ["eth*", "wan0"]
exclude = ["eth9"]
netns = ["all"]
hook = "tc"
metrics = "9464"
watchdog = "1s"
log-level = "debug"
log-format = "json"
strict = true
runtime-dir = "/run/other"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &config{RuntimeDir: folder{"/run/other"}, Interfaces: []glob{{"eth*"}, {"wan0"}}, Exclude: []glob{{"eth9"}}, Hook: hook{"tc"},
		Netns: []glob{{"all"}}, Metrics: address{"127.0.0.1:9464"}, Watchdog: patience{time.Second}, LogLevel: logLevel{"debug"}, LogFormat: format{"json"}, Strict: true}
	if diff := cmp.Diff(want, got, values); diff != "" {
		t.Error(diff)
	}
	if got, err := readConfig(write(t, "")); err != nil || cmp.Diff(defaults(), got, values) != "" {
		t.Errorf("an empty file: %+v, %v", got, err)
	}
}

func TestConfigMistakesNameTheLineAndWhatIsAllowed(t *testing.T) {
	for text, want := range map[string][]string{
		"hook = \"tc\"\nhok = \"xdp\"\n":     {":2:1:", `unknown key "hok"`, "runtime-dir, interfaces, exclude, hook"},
		"watchdog = \"1ms\"\n":               {":1:12:", "from 100ms to 1m0s"},
		"hook = 5\n":                         {":1:8:", `TOML integer; write it like hook = "auto"`},
		"\n\nhook = \"fast\"\n":              {":3:", "auto, xdp, tc"},
		"log-level = \"loud\"\n":             {":1:", "debug, info, warn, error"},
		"strict = \"yes\"\n":                 {":1:", "write it like strict = true"},
		"interfaces = \"eth0\"\n":            {":1:", `interfaces = ["eth*", "wan0"]`},
		"interfaces = [\"eth[\"]\n":          {":1:", "not a pattern"},
		"exclude = [\"wg*,docker0\"]\n":      {":1:12:", `"wg*,docker0" has a comma`, `write it like exclude = ["eth*", "wan0"]`},
		"hook = tc\n":                        {":1:"},
		"hook \"tc\"\n":                      {":1:"},
		"[router]\nhook = \"tc\"\n":          {":1:", `unknown key "router"`, "allowed are"},
		"metrics = \"localhost:99999999\"\n": {":1:", "127.0.0.1:9464"},
		"runtime-dir = \"\"\n":               {":1:15:", `"" is no folder; write it like /run/shunt`},
		"metrics = \":\"\n":                  {":1:11:", `":" is not an address`},
		"metrics = \"127.0.0.1\"\n":          {":1:11:", `"127.0.0.1" is not an address`},
		"hook = \"tc\"\nhook = \"xdp\"\n":    {":2:"},
		"exclude = [\"a\", []]\n":            {":1:", `exclude = ["eth*", "wan0"]`},
	} {
		path := write(t, text)
		_, err := readConfig(path)
		if err == nil {
			t.Errorf("%q is accepted", text)
			continue
		}
		if code, _ := status(err); code != exitUsage {
			t.Errorf("%q: exit status %d", text, code)
		}
		for _, w := range append(want, path) {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want %q in it", text, err, w)
			}
		}
	}
}

func TestOptionsOverrideTheFile(t *testing.T) {
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	given := defaults()
	given.options(set)
	if err := set.Parse([]string{"--hook=xdp", "--exclude", "a,b*"}); err != nil {
		t.Fatal(err)
	}
	got, err := configured(write(t, "hook = \"tc\"\nexclude = [\"z\"]\ninterfaces = [\"eth*\"]\nlog-level = \"warn\"\n"), given, set)
	if err != nil {
		t.Fatal(err)
	}
	want := &config{Hook: hook{"xdp"}, Exclude: []glob{{"a"}, {"b*"}}, Interfaces: []glob{{"eth*"}}, Watchdog: defaults().Watchdog, LogLevel: logLevel{"warn"}, LogFormat: format{"text"}}
	if diff := cmp.Diff(want, got, values); diff != "" {
		t.Error(diff)
	}
}

// FuzzConfig checks that no file panics and that every refusal names the file.
func FuzzConfig(f *testing.F) {
	f.Add("hook = \"tc\"\n")
	f.Add("[a]\nb = [1,2]\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, "shunt.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readConfig(path); err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v does not name the file", text, err)
		}
	})
}
