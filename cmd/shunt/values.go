// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"time"
)

// The kinds of values that options and the configuration file share: each is checked where it is read, so that an error can name the place. (As
// structures because the TOML library asks only those to read themselves.)
type (
	hook     struct{ text string }
	logLevel struct{ text string }
	format   struct{ text string }
	address  struct{ text string } // host:port, "" for none
	folder   struct{ text string }
	patience struct{ limit time.Duration }
	glob     struct{ text string } // as path.Match has it
	globList []glob
)

func pick(to *string, s string, allowed ...string) error {
	if !slices.Contains(allowed, s) {
		return fmt.Errorf("%q is not allowed; choose one of %s", s, strings.Join(allowed, ", "))
	}
	*to = s
	return nil
}

func (h *hook) Set(s string) error           { return pick(&h.text, s, "auto", "xdp", "tc") }
func (h *hook) UnmarshalText(b []byte) error { return h.Set(string(b)) }
func (h *hook) String() string               { return h.text }
func (h *hook) Type() string                 { return "auto|xdp|tc" }

func (l *logLevel) Set(s string) error           { return pick(&l.text, s, "debug", "info", "warn", "error") }
func (l *logLevel) UnmarshalText(b []byte) error { return l.Set(string(b)) }
func (l *logLevel) String() string               { return l.text }
func (l *logLevel) Type() string                 { return "LEVEL" }

func (f *format) Set(s string) error           { return pick(&f.text, s, "text", "json") }
func (f *format) UnmarshalText(b []byte) error { return f.Set(string(b)) }
func (f *format) String() string               { return f.text }
func (f *format) Type() string                 { return "text|json" }

func (d *folder) Set(s string) error {
	if s == "" {
		return fmt.Errorf("%q is no folder; write it like /run/shunt", s)
	}
	d.text = s
	return nil
}
func (d *folder) UnmarshalText(b []byte) error { return d.Set(string(b)) }

// Set takes host:port; without a host it is loopback, since metrics tell about the network.
func (a *address) Set(s string) error {
	if s == "" {
		a.text = ""
		return nil
	}
	whole := s
	if !strings.Contains(s, ":") {
		whole = ":" + s
	}
	host, port, err := net.SplitHostPort(whole)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return fmt.Errorf("%q is not an address; write it like 127.0.0.1:9464", s)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	a.text = net.JoinHostPort(host, port)
	return nil
}
func (a *address) UnmarshalText(b []byte) error { return a.Set(string(b)) }
func (a *address) String() string               { return a.text }
func (a *address) Type() string                 { return "ADDR:PORT" }

const (
	leastPatience = 100 * time.Millisecond // the daemon shows itself alive every 50 ms
	mostPatience  = time.Minute
)

func (p *patience) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < leastPatience || d > mostPatience {
		return fmt.Errorf("%q is not a time from %s to %s; write it like 400ms", s, leastPatience, mostPatience)
	}
	p.limit = d
	return nil
}
func (p *patience) UnmarshalText(b []byte) error { return p.Set(string(b)) }
func (p *patience) String() string               { return p.limit.String() }
func (p *patience) Type() string                 { return "DURATION" }

func (g *glob) Set(s string) error {
	if _, err := path.Match(s, ""); err != nil || s == "" {
		return fmt.Errorf("%q is not a pattern; a pattern is a name with *, ? or [a-z]", s)
	}
	g.text = s
	return nil
}

// UnmarshalText refuses a comma, which would be taken for a part of a name that no interface has.
func (g *glob) UnmarshalText(b []byte) error {
	if strings.Contains(string(b), ",") {
		return fmt.Errorf("%q has a comma, which separates patterns in options only", b)
	}
	return g.Set(string(b))
}

func (l *globList) Set(s string) error {
	for _, word := range strings.Split(s, ",") {
		var g glob
		if err := g.Set(strings.TrimSpace(word)); err != nil {
			return err
		}
		*l = append(*l, g)
	}
	return nil
}
func (l *globList) String() string { return strings.Join(plain(*l), ",") }
func (l *globList) Type() string   { return "GLOB,..." }

func plain[S ~[]glob](list S) (out []string) {
	for _, g := range list {
		out = append(out, g.text)
	}
	return out
}
