// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/model"
)

const (
	scrapeLimit = 5 * time.Second
	scrapers    = 32 // who are connected at a time; others wait. Whoever reaches the address could else use up the daemon's descriptors, without which nothing is forwarded
)

// serveMetrics answers Prometheus on the address; close ends it.
func (d *Daemon) serveMetrics() (close func(), err error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{d})
	l, err := net.Listen("tcp", d.Metrics)
	if err != nil {
		return nil, fmt.Errorf("listening for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: logger{d}}))
	server := &http.Server{Handler: mux, ReadTimeout: scrapeLimit, WriteTimeout: 2 * scrapeLimit, ErrorLog: slog.NewLogLogger(d.Log.Handler(), slog.LevelError)}
	server.SetKeepAlivesEnabled(false) // nobody stays
	go func() {
		if err := server.Serve(netutil.LimitListener(l, scrapers)); !errors.Is(err, http.ErrServerClosed) {
			d.Log.Error("serving metrics", "err", err)
		}
	}()
	d.Log.Info("serving metrics", "address", l.Addr().String())
	return func() { server.Close() }, nil
}

type logger struct{ *Daemon }

func (l logger) Println(v ...any) { l.Log.Error("serving metrics", "err", fmt.Sprint(v...)) }

// collector reads everything when it is asked; nothing is kept between scrapes.
type collector struct{ *Daemon }

var (
	packetsDesc = prometheus.NewDesc("shunt_packets_total",
		"Packets by the way they left shunt's programs: reason fast was forwarded, rule-drop dropped as Linux's rules say, any other went to Linux. See docs/reasons.md.", []string{"netns", "interface", "hook", "reason"}, nil)
	bytesDesc    = prometheus.NewDesc("shunt_fast_bytes_total", "Bytes of the packets that were forwarded.", []string{"netns", "interface", "hook"}, nil)
	stateDesc    = prometheus.NewDesc("shunt_interface_fast", "1 where all that Linux forwards has a fast path, 0.5 where some has, 0 where all goes to Linux.", []string{"netns", "interface"}, nil)
	readyDesc    = prometheus.NewDesc("shunt_ready", "1 once the namespace is served, 0 before and after a failure.", []string{"netns"}, nil)
	roundsDesc   = prometheus.NewDesc("shunt_rounds_total", "Rounds of reading, deciding and applying.", []string{"netns"}, nil)
	failuresDesc = prometheus.NewDesc("shunt_failed_rounds_total", "Rounds that failed; everything went to Linux until the next.", []string{"netns"}, nil)
	eventsDesc   = prometheus.NewDesc("shunt_events_total", "Messages from the kernel.", []string{"netns"}, nil)
	resyncsDesc  = prometheus.NewDesc("shunt_resyncs_total", "Times that messages from the kernel were lost and everything was read again.", []string{"netns"}, nil)
	changeDesc   = prometheus.NewDesc("shunt_last_change_seconds", "How long the last change took from its first event to its effect.", []string{"netns"}, nil)
	watchdogDesc = prometheus.NewDesc("shunt_watchdog_limit_seconds", "How long the data path trusts a silent daemon.", []string{"netns"}, nil)
)

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{packetsDesc, bytesDesc, stateDesc, readyDesc, roundsDesc, failuresDesc, eventsDesc, resyncsDesc, changeDesc, watchdogDesc} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	for _, m := range c.served() {
		name := model.PrintableName(m.name) // as those of interfaces are: one that is no UTF-8 would fail the whole page
		s, err := c.status(ctx, m.name)
		if err != nil || !s.Ready {
			ch <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, 0, name)
			continue
		}
		c.namespace(ch, name, s)
	}
}

func (c collector) namespace(ch chan<- prometheus.Metric, netns string, s *api.Status) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{netns}, labels...)...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{netns}, labels...)...)
	}
	fast := map[string]float64{api.StateFast: 1, api.StatePartial: 0.5}
	if s.Failing == "" {
		gauge(readyDesc, 1)
	} else { // counters go on, above all that of rounds that fail
		gauge(readyDesc, 0)
		clear(fast)
	}
	counter(roundsDesc, s.Sync.Rounds)
	counter(failuresDesc, s.Sync.Failures)
	counter(eventsDesc, s.Sync.Events)
	counter(resyncsDesc, s.Sync.Resyncs)
	gauge(changeDesc, s.Sync.LastChangeMS/1000)
	gauge(watchdogDesc, float64(s.Sync.WatchdogMS)/1000)
	for _, i := range s.Interfaces {
		gauge(stateDesc, fast[i.State], i.Name)
		for hook, p := range i.Hooks {
			counter(packetsDesc, p.Fast, i.Name, hook, "fast")
			counter(bytesDesc, p.Bytes, i.Name, hook)
			for _, by := range []map[string]uint64{p.Slow, p.Dropped} { // which have no reason in common
				for reason, n := range by {
					counter(packetsDesc, n, i.Name, hook, reason)
				}
			}
		}
	}
}
