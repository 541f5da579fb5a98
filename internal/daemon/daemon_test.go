// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// patience is how long a test waits for what takes milliseconds on an idle machine.
const patience = time.Minute

// served is a daemon without an engine of its own: the namespace that the tests were started in is left alone. It answers on a socket.
func served(t *testing.T, netns ...string) *Daemon {
	t.Helper()
	lab.RequireRoot(t)
	d := &Daemon{
		Options: Options{RuntimeDir: filepath.Join(t.TempDir(), "run"), Policy: graph.Policy{Hook: "tc"}, Netns: netns, Watchdog: patience,
			Version: "test", Log: slog.New(slog.DiscardHandler)},
		netnsDir: netnsDir, members: map[string]*member{}, awake: func() {},
	}
	if err := os.Mkdir(d.RuntimeDir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.ctx, d.stop = context.WithCancel(context.Background())
	var err error
	if d.server, err = api.Listen(api.Socket(d.RuntimeDir), d.Log); err != nil {
		t.Fatal(err)
	}
	d.server.Serve(context.Background(), d.handle)
	t.Cleanup(func() {
		d.shutdown(true)
		d.server.Close()
		if _, err := os.Stat(d.RuntimeDir); !os.IsNotExist(err) {
			t.Errorf("after stopping with --detach, %s is still there (%v)", d.RuntimeDir, err)
		}
	})
	return d
}

// serve makes the daemon serve the router of a line, under the name "dut".
func (d *Daemon) serveLine(t *testing.T) *lab.Net {
	t.Helper()
	n := lab.BuildLineT(t, lab.LineOptions{})
	path := n.Node(lab.Dut).Path()
	id, ok := identify(path)
	if !ok {
		t.Fatalf("%s is no namespace", path)
	}
	m, err := d.start("dut", path, &id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.untilReady(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.end(true) }) // before the namespace goes
	return n
}

// ask is a request as a client makes it.
func (d *Daemon) ask(t *testing.T, netns string, verb api.Verb, args, out any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return (&api.Client{RuntimeDir: d.RuntimeDir, Netns: netns}).Call(ctx, verb, args, out)
}

// refused wants an error of a kind that says something.
func refused(t *testing.T, err error, kind api.Kind, says string) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(e.Message, says) {
		t.Errorf("the answer is %v, want one of kind %s that says %q", err, kind, says)
	}
}

func TestAnswers(t *testing.T) {
	d := served(t)
	refused(t, d.ask(t, "dut", api.VerbStatus, nil, nil), api.KindUsage, `start it with --netns to serve "dut"`)
	d.serveLine(t)

	var s api.Status
	status := func() {
		t.Helper()
		s = api.Status{}
		if err := d.ask(t, "dut", api.VerbStatus, nil, &s); err != nil {
			t.Fatal(err)
		}
	}
	face := func(name string) api.Interface {
		i := slices.IndexFunc(s.Interfaces, func(i api.Interface) bool { return i.Name == name })
		if i < 0 {
			t.Fatalf("status does not name %s", name)
		}
		return s.Interfaces[i]
	}
	state := func(name string) string { return face(name).State }
	why := func(name string) string { // the first reason
		if r := face(name).Reasons; len(r) > 0 {
			return r[0].Reason
		}
		return ""
	}
	status()
	if !s.Ready || s.Version != "test" || s.Hook != "tc" || s.Netns != "dut" || s.PID != os.Getpid() {
		t.Errorf("status is %+v", s)
	}
	if state("in") != api.StateFast || state("out") != api.StateFast || state("lo") == api.StateFast {
		t.Errorf("in is %s, out %s, lo %s", state("in"), state("out"), state("lo"))
	}
	refused(t, d.ask(t, "blue", api.VerbStatus, nil, nil), api.KindUsage, `does not serve network namespace "blue"; it serves dut`)

	if err := d.ask(t, "dut", api.VerbPause, api.PauseArgs{Interface: "in"}, nil); err != nil {
		t.Fatal(err)
	}
	if status(); s.Paused || state("in") != api.StateSlow || why("in") != "paused" || why("out") == "paused" {
		t.Errorf("with in paused: paused %t, in is %s because %s, out because %s", s.Paused, state("in"), why("in"), why("out"))
	}
	if err := d.ask(t, "dut", api.VerbPause, nil, nil); err != nil {
		t.Fatal(err)
	}
	if status(); !s.Paused || why("out") != "paused" {
		t.Errorf("paused: paused %t, out is slow because %s", s.Paused, why("out"))
	}
	if err := d.ask(t, "dut", api.VerbResume, nil, nil); err != nil {
		t.Fatal(err)
	}
	if status(); s.Paused || state("in") != api.StateFast || state("out") != api.StateFast {
		t.Errorf("resumed: paused %t, in is %s, out %s", s.Paused, state("in"), state("out"))
	}
	refused(t, d.ask(t, "dut", api.VerbPause, api.PauseArgs{Interface: "eth7"}, nil), api.KindUsage, `there is no interface "eth7"`)

	for what, says := range map[string]string{api.ShowGraph: "redirect", api.ShowReasons: "ttl", api.ShowPrograms: "shunt_tc", api.ShowEvents: "in: attached at tc, fast"} {
		until(t, "show "+what+" speaks of "+says, func() bool {
			var raw json.RawMessage
			if err := d.ask(t, "dut", api.VerbShow, api.ShowArgs{What: what}, &raw); err != nil {
				t.Fatalf("show %s: %v", what, err)
			}
			return strings.Contains(string(raw), says)
		})
	}
	var picture string
	if err := d.ask(t, "dut", api.VerbShow, api.ShowArgs{What: api.ShowGraph, Format: "dot"}, &picture); err != nil || !strings.HasPrefix(picture, "digraph") {
		t.Errorf("the graph as DOT begins with %.20q (%v)", picture, err)
	}
	refused(t, d.ask(t, "dut", api.VerbShow, api.ShowArgs{What: api.ShowGraph, Format: "png"}, nil), api.KindUsage, "text, dot or svg")
	refused(t, d.ask(t, "dut", api.VerbShow, api.ShowArgs{What: "everything"}, nil), api.KindUsage, `cannot show "everything"`)
	refused(t, d.ask(t, "dut", "dance", nil, nil), api.KindUsage, `does not know the request "dance"`)
	refused(t, d.ask(t, "dut", api.VerbExplain, []int{1}, nil), api.KindUsage, "arguments of explain")

	var x api.Explanation
	if err := d.ask(t, "dut", api.VerbExplain, api.ExplainArgs{Interface: "in", Packet: "udp 10.0.0.2:1 > 10.1.0.2:2 ttl=1"}, &x); err != nil {
		t.Fatal(err)
	}
	if n := len(x.Steps); n != 1 || x.Steps[0].Reason != "ttl" {
		t.Errorf("the packet's way is %+v, want one step with reason ttl", x.Steps)
	}
}

// until waits for what comes a moment later.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s still not: %s", patience, what)
		}
	}
}

// Who monitors is told of a round that changed something, and the stream ends with the daemon.
func TestMonitor(t *testing.T) {
	d := served(t)
	n := d.serveLine(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	seen := make(chan api.Event, 16)
	ended := make(chan error, 1)
	listening := make(chan struct{})
	go func() {
		close(listening)
		ended <- d.monitor(ctx, "", func(v any) error { seen <- v.(api.Event); return nil })
	}()
	<-listening
	for told := false; !told; {
		if err := n.Node(lab.Dut).Exec("ip link set out down"); err != nil {
			t.Fatal(err)
		}
		select {
		case e := <-seen:
			if told = e.Netns == "dut" && strings.Contains(strings.Join(e.Changes, " "), "out"); !told {
				t.Logf("told of %+v", e)
			}
		case <-time.After(200 * time.Millisecond): // it may not have listened yet
			if err := n.Node(lab.Dut).Exec("ip link set out up"); err != nil {
				t.Fatal(err)
			}
		case <-ctx.Done():
			t.Fatal("nothing was told")
		}
	}
	d.stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A sign of life for the service manager needs an answer of every engine.
func TestAlive(t *testing.T) {
	d := served(t)
	d.serveLine(t)
	if !d.alive(context.Background(), patience) {
		t.Fatal("an idle daemon is not alive")
	}
	m, err := d.member("dut")
	if err != nil {
		t.Fatal(err)
	}
	stuck, free, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- m.engine.Do(context.Background(), func(*datapath.Datapath) error { close(stuck); <-free; return nil })
	}()
	<-stuck
	if d.alive(context.Background(), 50*time.Millisecond) {
		t.Error("a daemon with a stuck engine is alive")
	}
	close(free)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !d.alive(context.Background(), patience) {
		t.Error("a daemon whose engine goes on is not alive")
	}
}

func TestMetrics(t *testing.T) {
	d := served(t)
	d.serveLine(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{d})
	values := map[string]float64{}
	until(t, "the first round is counted", func() bool { // which happens beside it
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				key := f.GetName()
				for _, l := range m.GetLabel() {
					key += " " + l.GetValue()
				}
				values[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		return values["shunt_rounds_total dut"] >= 1
	})
	for key, want := range map[string]float64{"shunt_ready dut": 1, "shunt_interface_fast in dut": 1, "shunt_interface_fast lo dut": 0,
		"shunt_watchdog_limit_seconds dut": patience.Seconds(), "shunt_packets_total tc in dut fast": 0, "shunt_failed_rounds_total dut": 0} {
		if got, there := values[key]; !there || got != want {
			t.Errorf("%s is %g (there: %t), want %g", key, got, there, want)
		}
	}
}

// The log names the address, in JSON too, since with port 0 nothing else does.
func TestMetricsAddressIsLogged(t *testing.T) {
	var told strings.Builder
	d := &Daemon{Options: Options{Metrics: "127.0.0.1:0", Log: slog.New(slog.NewJSONHandler(&told, nil))}}
	close, err := d.serveMetrics()
	if err != nil {
		t.Fatal(err)
	}
	close()
	if !strings.Contains(told.String(), `"address":"127.0.0.1:`) {
		t.Error(told.String())
	}
}

// Whoever reaches the address of metrics keeps no connection, and has no more than a few at a time.
func TestMetricsConnections(t *testing.T) {
	var told strings.Builder
	d := &Daemon{Options: Options{Metrics: "127.0.0.1:0", Log: slog.New(slog.NewJSONHandler(&told, nil))}}
	end, err := d.serveMetrics()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	var logged struct{ Address string }
	if err := json.Unmarshal([]byte(told.String()), &logged); err != nil {
		t.Fatal(err)
	}
	call := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", logged.Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ask := func(c net.Conn) {
		t.Helper()
		if _, err := c.Write([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(c net.Conn, within time.Duration) error {
		c.SetReadDeadline(time.Now().Add(within))
		_, err := io.ReadAll(c) // to the end of the connection
		return err
	}
	first := call()
	ask(first)
	if err := answer(first, patience); err != nil {
		t.Errorf("a connection stays after its answer: %v", err)
	}
	silent := make([]net.Conn, scrapers)
	for i := range silent {
		silent[i] = call()
	}
	late := call()
	ask(late)
	if err := answer(late, 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("beside %d who say nothing another one is served: %v", scrapers, err)
	}
	for _, c := range silent {
		c.Close()
	}
	if err := answer(late, patience); err != nil {
		t.Errorf("whoever waited has no answer: %v", err)
	}
}

// Stopping answers whoever asks when everything is gone, and only once.
func TestStop(t *testing.T) {
	d := served(t)
	n := d.serveLine(t)
	var a api.Stopped
	if err := d.ask(t, "", api.VerbStop, api.StopArgs{Detach: true}, &a); err != nil || !a.Detached || a.PID != os.Getpid() {
		t.Errorf("the answer is %+v, %v", a, err)
	}
	if d.ctx.Err() == nil {
		t.Error("the daemon goes on")
	}
	if _, err := d.start("late", n.Node(lab.Src).Path(), nil); !errors.Is(err, errEnding) {
		t.Errorf("serving one more namespace gives %v, want %v", err, errEnding)
	}
	refused(t, d.ask(t, "", api.VerbStatus, nil, nil), api.KindNoDaemon, "no shunt daemon")
	if left, _ := filepath.Glob(d.RuntimeDir + "/*"); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
}

func TestInterfacesExist(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, c := range []struct {
		p         graph.Policy
		elsewhere bool
		says      string // "" where nothing is refused
	}{
		{graph.Policy{}, false, ""},
		{graph.Policy{Include: []string{"lo"}}, false, ""},
		{graph.Policy{Include: []string{"nosuch*", "lo"}, Exclude: []string{"nosuch0"}}, false, ""},
		{graph.Policy{Include: []string{"nosuch0"}}, false, `there is no interface "nosuch0"`},
		{graph.Policy{Include: []string{"nosuch0"}}, true, ""},
		{graph.Policy{Exclude: []string{"lo", "["}}, true, `interface pattern "["`},
	} {
		err := interfacesExist(c.p, c.elsewhere, log)
		if c.says == "" {
			if err != nil {
				t.Errorf("%+v, elsewhere %t: %v", c.p, c.elsewhere, err)
			}
			continue
		}
		refused(t, err, api.KindUsage, c.says)
	}
}

// Who misspells what is to be left alone is told so.
func TestExcludedInterfaceThatIsNotThere(t *testing.T) {
	var told strings.Builder
	log := slog.New(slog.NewTextHandler(&told, nil))
	if err := interfacesExist(graph.Policy{Exclude: []string{"lo", "nosuch*"}}, false, log); err != nil || told.Len() > 0 {
		t.Errorf("%v, %q", err, told.String())
	}
	if err := interfacesExist(graph.Policy{Exclude: []string{"lo", "nosuch0"}}, false, log); err != nil || !strings.Contains(told.String(), "interface=nosuch0") {
		t.Errorf("%v, %q", err, told.String())
	}
}

func TestFolders(t *testing.T) {
	run := t.TempDir()
	for _, dir := range []string{"netns/a/bpf", "netns/b"} {
		if err := os.MkdirAll(filepath.Join(run, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(run, "netns/c"), nil, 0o600); err != nil { // as ip makes it below /run
		t.Fatal(err)
	}
	if err := os.Symlink("/run/docker/netns/b", atOf(run, "b")); err != nil {
		t.Fatal(err)
	}
	if got, want := folders(run), []string{run + "/netns/a", run + "/netns/b/at", run + "/netns/b", run + "/netns"}; !slices.Equal(got, want) {
		t.Errorf("folders are %s, want %s", got, want)
	}
	if got, want := pinsOf(run, "a"), run+"/netns/a/bpf"; got != want {
		t.Errorf("a's pins are in %s, want %s", got, want)
	}
	if got, want := pinsOf(run, ""), run+"/bpf"; got != want {
		t.Errorf("the daemon's own pins are in %s, want %s", got, want)
	}
}
