// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/check"
	"github.com/shuntnet/shunt/internal/datapath"
	"github.com/shuntnet/shunt/internal/graph"
)

// Options configure the daemon.
type Options struct {
	RuntimeDir string        // socket and pinned links
	Policy     graph.Policy  // of every namespace
	Netns      []string      // globs of names under /run/netns, or of files in a folder, to serve as well; "all" means "*"
	Once       bool          // set everything up, take it away again, and return
	Metrics    string        // address for Prometheus, "" for none
	Watchdog   time.Duration // how long the data path trusts a silent daemon
	Tier       datapath.Tier // datapath.Options.Tier, for tests
	Version    string
	Log        *slog.Logger
	// Ready is called once everything is in place; with Once before it is taken away. May be nil.
	Ready func(*api.Status)
}

// Daemon is a running `shunt run`.
type Daemon struct {
	Options
	netnsDir string
	server   *api.Server

	mu      sync.Mutex
	members map[string]*member // by name of the namespace, "" for the one that the daemon was started in
	ending  bool

	ctx    context.Context // ends when the daemon is asked to
	stop   context.CancelFunc
	awake  func()    // ends the start, with its low priority
	once   sync.Once // of shutdown
	detach bool      // everything is removed; set by shutdown, or later by ended

	clearing sync.Mutex // of ended
}

// gcPercent is how much a heap may grow over what is in use, in per cent: a daemon that mostly waits is to be small.
const gcPercent = 40

// Run serves until the context ends or a client asks to stop.
func Run(ctx context.Context, o Options) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	release := bpfobj.KeepKernelTypes()
	defer release()
	if err := check.Requirements(); err != nil {
		return err
	}
	if err := interfacesExist(o.Policy, len(o.Netns) > 0 || os.Getenv("NOTIFY_SOCKET") != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != "", o.Log); err != nil {
		return err
	}
	if err := netnsPatterns(o.Netns); err != nil {
		return err
	}
	_, missing := os.Lstat(o.RuntimeDir)
	if err := os.MkdirAll(o.RuntimeDir, 0o755); err != nil {
		return fmt.Errorf("making the runtime directory: %w", err)
	}
	d := &Daemon{Options: o, netnsDir: netnsDir, members: map[string]*member{}}
	d.ctx, d.stop = context.WithCancel(ctx)
	defer d.stop()

	var err error
	if d.server, err = api.Listen(api.Socket(o.RuntimeDir), o.Log); err != nil {
		if missing != nil {
			os.Remove(o.RuntimeDir)
		}
		return err
	}
	raise := stepAside(asideMost)
	d.awake = sync.OnceFunc(func() { release(); raise() })
	defer d.awake()
	d.server.Serve(context.WithoutCancel(ctx), d.handle)
	err = d.serve()
	d.shutdown(o.Once)
	d.server.Close()
	if err != nil && missing != nil {
		os.Remove(o.RuntimeDir) // made for nothing, unless something of the daemon is left there
	}
	return err
}

// serve starts everything and waits for the end.
func (d *Daemon) serve() error {
	if d.Metrics != "" && !d.Once {
		close, err := d.serveMetrics()
		if err != nil {
			return err
		}
		defer close()
	}
	own, err := d.start("", "", nil)
	if err != nil {
		return err
	}
	if err := own.untilReady(d.ctx); err != nil {
		return stopped(d.ctx, err)
	}
	d.awake()
	d.Log.Info("ready", "version", d.Version, "runtime-dir", d.RuntimeDir)
	if d.Once {
		return d.announce()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	if len(d.Netns) > 0 {
		wg.Go(func() { d.watchNetns(d.ctx) })
	}
	wg.Go(func() { d.keepSystemd(d.ctx) })
	if err := d.announce(); err != nil {
		return err
	}
	return d.keepOwn(own)
}

// keepOwn waits for the end. Where other namespaces are served, the engine of the daemon's own is started again when it has failed, later each time, as theirs are (netnsWatcher.serveOne); else the daemon ends, and
// whoever started it knows.
func (d *Daemon) keepOwn(own *member) error {
	for delay := retryFirst; ; delay = min(2*delay, retryMost) {
		began := time.Now()
		select {
		case <-d.ctx.Done():
			return nil
		case <-own.done:
		}
		if d.ctx.Err() != nil || len(d.Netns) == 0 {
			return stopped(d.ctx, own.err)
		}
		if time.Since(began) > delay {
			delay = retryFirst // it has run for as long as it waited
		}
		d.Log.Error("the daemon's own network namespace stays with Linux; trying again", "in", delay, "err", own.err)
		select {
		case <-d.ctx.Done():
			return nil
		case <-time.After(delay):
		}
		var err error
		if own, err = d.start(own.name, own.path, nil); err != nil {
			return stopped(d.ctx, err)
		}
	}
}

// stopped is nil where an engine ended because it was asked to.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// announce tells the caller what is in place.
func (d *Daemon) announce() error {
	if d.Ready == nil {
		return nil
	}
	s, err := d.status(d.ctx, "")
	if err != nil {
		return err
	}
	d.Ready(s)
	return nil
}

// shutdown ends all members and takes away the socket, once; every caller waits for it. Whoever asked is answered after it.
func (d *Daemon) shutdown(detach bool) {
	d.once.Do(func() {
		d.awake() // the end of a start that is not over is not to wait for its turn
		d.stop()
		systemd(sd.SdNotifyStopping)
		d.mu.Lock()
		d.ending = true
		d.mu.Unlock()
		var wg sync.WaitGroup
		for _, m := range d.served() {
			wg.Go(func() { m.end(detach) })
		}
		wg.Wait()
		d.server.StopListening()
		d.detach = detach
		for _, m := range d.served() {
			d.detach = d.detach && m.engine.Left() == nil
		}
		if detach {
			d.forget(func(string) bool { return true })
			d.removeFolders()
		}
		d.Log.Info("stopped", "detached", d.detach)
	})
}

// removeFolders deletes what this daemon made in the file system, as far as it is empty.
func (d *Daemon) removeFolders() {
	for _, dir := range append(folders(d.RuntimeDir), d.RuntimeDir) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) && !(dir == d.RuntimeDir && inUse(err)) {
			d.Log.Warn("removing what shunt made", "err", err)
		}
	}
}

// served are the members, by name.
func (d *Daemon) served() []*member {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.members), func(a, b *member) int { return strings.Compare(a.name, b.name) })
}
