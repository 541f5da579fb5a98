// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/shuntnet/shunt/internal/control"
	"github.com/shuntnet/shunt/internal/datapath"
)

// systemd tells the service manager something; nothing happens where there is none.
func systemd(state string) { sd.SdNotify(false, state) }

// keepSystemd says that the daemon is ready, and from then on that it is alive, for as long as every engine answers between its rounds: a
// timer that ticks beside a stuck loop would prove nothing.
func (d *Daemon) keepSystemd(ctx context.Context) {
	systemd(sd.SdNotifyReady)
	interval, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		d.Log.Warn("reading systemd's watchdog interval", "err", err)
	}
	if interval == 0 {
		return
	}
	tick := time.NewTicker(interval / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if d.alive(ctx, interval/2) {
			systemd(sd.SdNotifyWatchdog)
		}
	}
}

// alive asks every engine that is ready to answer within a time.
func (d *Daemon) alive(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, m := range d.served() {
		if m.engine.State() == nil {
			continue
		}
		select {
		case <-m.done:
			continue // ended by itself, which is told elsewhere
		default:
		}
		if err := m.do(ctx, func(*control.State, *datapath.Datapath) error { return nil }); err != nil {
			d.Log.Warn("an engine does not answer", "netns", m.name, "err", err)
			return false
		}
	}
	return true
}
