// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// NAPIThreads returns the process ids of the kernel threads that poll the port,
// one per receive queue, in the order in which they were made. The port's End
// must be Threaded and up, and receive with NAPI.
func (p *Port) NAPIThreads() ([]int, error) {
	pids, err := p.napiByNetlink()
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) { // before Linux 6.8
		pids, err = p.napiByName()
	}
	if err != nil {
		return nil, fmt.Errorf("finding the NAPI threads of %s: %w", p, err)
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("no NAPI thread polls %s: is its End Threaded, with ReceiveGRO or a program?", p)
	}
	slices.Sort(pids)
	return pids, nil
}

// napiByNetlink asks the netdev family of generic netlink, which knows the
// interface, not merely its name.
func (p *Port) napiByNetlink() ([]int, error) {
	const (
		cmdNapiGet  = 11 // NETDEV_CMD_NAPI_GET
		attrIfindex = 1  // NETDEV_A_NAPI_IFINDEX
		attrPID     = 4  // NETDEV_A_NAPI_PID
	)
	family, err := p.NS.nl.GenlFamilyGet("netdev")
	if err != nil {
		return nil, err
	}
	conn, err := netlink.Dial(unix.NETLINK_GENERIC, &netlink.Config{NetNS: int(p.NS.file.Fd())})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ask := netlink.NewAttributeEncoder()
	ask.Uint32(attrIfindex, uint32(p.Index))
	attrs, err := ask.Encode()
	if err != nil {
		return nil, err
	}
	// The answers to this dump lack NLM_F_MULTI; this library, unlike the other
	// one, does not stop at the first of them for that.
	answers, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(family.ID), Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{cmdNapiGet, 1, 0, 0}, attrs...), // struct genlmsghdr
	})
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, answer := range answers {
		if len(answer.Data) < unix.GENL_HDRLEN {
			continue
		}
		got, err := netlink.NewAttributeDecoder(answer.Data[unix.GENL_HDRLEN:])
		if err != nil {
			return nil, err
		}
		for got.Next() {
			if got.Type() == attrPID {
				pids = append(pids, int(got.Uint32()))
			}
		}
		if err := got.Err(); err != nil {
			return nil, err
		}
	}
	return pids, nil
}

// napiByName looks for threads called napi/IFACE-ID. The name says nothing about
// the namespace, so more threads than queues mean a namesake elsewhere.
func (p *Port) napiByName() ([]int, error) {
	link, err := p.NS.nl.LinkByIndex(p.Index)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		comm, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		id, ok := strings.CutPrefix(strings.TrimSpace(string(comm)), "napi/"+p.Name+"-")
		if _, err := strconv.Atoi(id); !ok || err != nil {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	if queues := link.Attrs().NumRxQueues; len(pids) > queues {
		return nil, fmt.Errorf("%d threads are called napi/%s-… for %d queues: another namespace has an interface of this name", len(pids), p.Name, queues)
	}
	return pids, nil
}

// PinNAPI makes each of the port's NAPI threads run on one CPU: thread i on
// cpus[i mod len(cpus)].
func (p *Port) PinNAPI(cpus ...int) error {
	pids, err := p.NAPIThreads()
	if err != nil {
		return err
	}
	for i, pid := range pids {
		if err := pin(pid, cpus[i%len(cpus)]); err != nil {
			return err
		}
	}
	return nil
}

// pin makes a thread run on one CPU; pid 0 is the calling thread.
func pin(pid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(pid, &set); err != nil {
		return fmt.Errorf("pinning thread %d to CPU %d: %w", pid, cpu, err)
	}
	return nil
}
