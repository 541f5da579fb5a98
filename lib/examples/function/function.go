// SPDX-License-Identifier: Apache-2.0

// Package function is what the examples' loaders share: options, attaching, reporting once a second, and going away without a trace.
//
// Problem: a loader is nine tenths the same for every network function, and the tenth that differs is what a reader looks for.
//
// Mechanism: a [Function] says which object to load, what to set before and what to print. [Function.Main] is a whole command line
// program of it; tests take [Function.Load] and [Attach] alone.
//
// Invariant: nothing is pinned; the program is attached by a link that ends with the process, so a crash leaves nothing.
package function

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
)

// A Function is a network function: an XDP program, and what user space has to do for it.
type Function struct {
	Name, About string
	Object      []byte // the compiled object
	Program     string // the XDP program in it

	Flags  func(*flag.FlagSet)                          // its own options, or nil
	Before func(*ebpf.CollectionSpec) error             // sets variables before loading, or nil
	After  func(*ebpf.Collection) error                 // fills maps before attaching, or nil
	Report func(*ebpf.Collection) (fmt.Stringer, error) // what to print: as text, or with --json as JSON

	Several bool                                          // it is for several devices, not one
	Started func(*ebpf.Collection, []net.Interface) error // told which, before the first packet, or nil
}

// Load loads the object and fills its maps. The caller closes what it gets.
func (f *Function) Load() (*ebpf.Collection, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raising the limit of locked memory: %w", err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(f.Object))
	if err != nil {
		return nil, fmt.Errorf("reading the compiled object: %w", err)
	}
	if f.Before != nil {
		if err := f.Before(spec); err != nil {
			return nil, err
		}
	}
	coll, err := ebpf.NewCollection(spec)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("loading the program: %w (run this as root, or with CAP_BPF and CAP_NET_ADMIN)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("loading the program: %w", err)
	}
	if f.After != nil {
		if err := f.After(coll); err != nil {
			coll.Close()
			return nil, err
		}
	}
	return coll, nil
}

// AttachAll attaches the program to the devices, in order, after telling the function of them. The links that it returns are to be
// closed also when it fails.
func (f *Function) AttachAll(coll *ebpf.Collection, names []string) ([]link.Link, error) {
	var devices []net.Interface
	for _, name := range names {
		device, err := deviceOf(name)
		if err != nil {
			return nil, err
		}
		devices = append(devices, *device)
	}
	if f.Started != nil {
		if err := f.Started(coll, devices); err != nil {
			return nil, err
		}
	}
	var links []link.Link
	for _, name := range names {
		l, err := f.Attach(coll, name)
		if err != nil {
			return links, err
		}
		links = append(links, l)
	}
	return links, nil
}

func deviceOf(name string) (*net.Interface, error) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w (`ip link` lists what there is)", name, err)
	}
	return device, nil
}

// Attach attaches the program to the device of this name in the calling thread's network namespace, in the driver where it can.
func (f *Function) Attach(coll *ebpf.Collection, dev string) (link.Link, error) {
	device, err := deviceOf(dev)
	if err != nil {
		return nil, err
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: coll.Programs[f.Program], Interface: device.Index})
	if errors.Is(err, syscall.EBUSY) {
		return nil, fmt.Errorf("device %s has an XDP program already (`ip link show %s` names it)", dev, dev)
	}
	if err != nil {
		return nil, fmt.Errorf("attaching to %s: %w", dev, err)
	}
	return l, nil
}

// Main runs the function as a program: exit status 1 for what failed, 2 for wrong usage.
func (f *Function) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := f.Run(ctx, os.Args[1:], os.Stdout); {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", f.Name, err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong usage")

// Run does what Main does until ctx ends, with these arguments.
func (f *Function) Run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(f.Name, flag.ContinueOnError)
	which := "the device whose packets to take (required)"
	if f.Several {
		which = "the devices, separated by commas (required)"
	}
	dev := flags.String("dev", "", which)
	asJSON := flags.Bool("json", false, "print reports as JSON, one per line")
	every := flags.Duration("interval", time.Second, "time between two reports")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "%s: %s\n\nusage: %s -dev DEVICE [options]\n", f.Name, f.About, f.Name)
		flags.PrintDefaults()
	}
	if f.Flags != nil {
		f.Flags(flags)
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage // flag has said what is wrong
	}
	if *dev == "" || flags.NArg() > 0 || *every <= 0 {
		flags.Usage()
		return errUsage
	}
	coll, err := f.Load()
	if err != nil {
		return err
	}
	defer coll.Close()
	names := []string{*dev}
	if f.Several {
		names = strings.Split(*dev, ",")
	}
	links, err := f.AttachAll(coll, names)
	for _, l := range links {
		defer l.Close()
	}
	if err != nil {
		return err
	}
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		report, err := f.Report(coll)
		if err != nil {
			return fmt.Errorf("reading the maps: %w", err)
		}
		if *asJSON {
			err = json.NewEncoder(out).Encode(report)
		} else {
			_, err = fmt.Fprintln(out, report)
		}
		if err != nil {
			return err
		}
	}
}

// PerCPU reads the only entry of a per-CPU map: one value for each CPU.
func PerCPU[T any](coll *ebpf.Collection, name string) ([]T, error) {
	var all []T
	if err := coll.Maps[name].Lookup(uint32(0), &all); err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	return all, nil
}

// Fill writes the same value for every CPU into the only entry of a per-CPU map; change, if any, makes each CPU's its own.
func Fill[T any](coll *ebpf.Collection, name string, value T, change func(cpu int, v *T)) error {
	all := make([]T, ebpf.MustPossibleCPU())
	for cpu := range all {
		all[cpu] = value
		if change != nil {
			change(cpu, &all[cpu])
		}
	}
	if err := coll.Maps[name].Update(uint32(0), all, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("map %s: %w", name, err)
	}
	return nil
}
