// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/lab"
)

// twin is one of the two routers with its wires.
type twin struct {
	name       string
	net        *lab.Net
	dut        *lab.NS
	wire       *lab.Wire
	capture    *lab.Capture
	hosts      hosts
	taps       []tap
	sockets    []int                    // others that may take packets
	umem       []byte                   // of an AF_XDP socket
	foreigners []link.Link              // other people's programs
	arps       map[netip.Addr]time.Time // when each sender's latest ARP packet was sent
	senders    senders
	daemon     *daemon           // nil beside plain Linux
	unasked    map[string]uint64 // of counters, what they rose by during commands, see ownReports
	// stations is nil where there is no bridge.
	stations stations
}

func newTwin(name string, wire **lab.Wire) (*twin, error) {
	n, err := lab.Build(lab.UniquePrefix(name), topology())
	if err != nil {
		return nil, err
	}
	t := &twin{name: name, net: n, dut: n.Node(lab.Dut), hosts: hosts{}, senders: senders{}, unasked: map[string]uint64{}, arps: map[netip.Addr]time.Time{}}
	if err := t.open(wire); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *twin) open(wire **lab.Wire) (err error) {
	var far []*lab.Port
	for i := range Ports {
		far = append(far, t.far(i))
	}
	if t.capture, err = lab.NewCapture(far...); err != nil {
		return err
	}
	if *wire == nil {
		if *wire, err = lab.NewWire(far...); err != nil {
			return err
		}
		(*wire).Unchecked = true
	}
	t.wire = *wire
	for i := range Ports {
		if err := t.dut.Exec("ip link set %s mtu 1500", portName(i)); err != nil {
			return err
		}
	}
	return nil
}

func (t *twin) port(i int) *lab.Port { return t.net.Port(lab.Dut, portName(i)) }
func (t *twin) far(i int) *lab.Port  { return t.net.Port("wire", fmt.Sprintf("w%d", i)) }

func (t *twin) close() error {
	var errs []error
	if t.daemon != nil {
		errs = append(errs, t.daemon.stop())
	}
	for _, s := range t.taps {
		errs = append(errs, s.close())
	}
	errs = append(errs, t.closeSockets(), t.closeForeign())
	if t.umem != nil {
		errs = append(errs, unix.Munmap(t.umem))
	}
	t.senders.close()
	t.forget()
	if t.capture != nil {
		errs = append(errs, t.capture.Close())
	}
	return errors.Join(append(errs, t.net.Close())...)
}

// forget empties the queues for hosts that did not answer, which switching ARP off does. What a router says itself counts there against a limit that all of
// a processor's namespaces share (the kernel's ICMP sockets), and the kernel takes its time to free a namespace.
func (t *twin) forget() {
	links, err := t.dut.Netlink().LinkList()
	if err != nil {
		return
	}
	for _, link := range links {
		t.dut.Netlink().LinkSetARPOff(link) // those that cannot are gone with the namespace
	}
}

// apply runs the commands of a step and returns what they complained about: twins
// must agree on that, too.
func (t *twin) apply(commands []string) (string, error) {
	var said strings.Builder
	if len(commands) > 0 {
		clear(t.stations)
	}
	for len(commands) > 0 {
		n := 1
		word, rest, _ := strings.Cut(commands[0], " ")
		if tool, input, ok := strings.Cut(commands[0], "\n"); ok {
			said.WriteString(complaint(t.dut.Feed(input, "%s", waiting(tool)), word))
			commands = commands[1:]
			continue
		}
		switch word {
		case "ip", "tc", "bridge":
			tool := toolOf(commands[0])
			for n < len(commands) && tool == toolOf(commands[n]) {
				n++
			}
			answer, err := t.batch(tool, commands[:n])
			if err != nil {
				return "", err
			}
			said.WriteString(answer)
		case "sysctl":
			if err := t.dut.Sysctl(rest); err != nil {
				fmt.Fprintf(&said, "%s: %v\n", commands[0], errors.Unwrap(err))
			}
		case "nft":
			said.WriteString(complaint(t.dut.Feed(rest, "nft -f -"), "nft"))
		case "host":
			if err := t.hosts.set(rest); err != nil {
				return "", err
			}
		case "drop-priority":
			if err := t.dropBy(priorityOffset, rest); err != nil {
				return "", err
			}
		case "drop-mark":
			if err := t.dropBy(markOffset, rest); err != nil {
				return "", err
			}
		case "carrier": // "PORT up" or "PORT down": the far end of a port's cable
			if err := t.net.Node("wire").Exec("ip link set w%s", rest); err != nil {
				return "", err
			}
		case "plain": // PORT: the far end takes no XDP frames any more, as one without GRO and without a program
			if err := t.net.Node("wire").Exec("ip link set w%s xdp off", rest); err != nil {
				return "", err
			}
		case "foreign":
			if err := t.foreign(rest); err != nil {
				return "", err
			}
		case "socket":
			if err := t.openSocket(rest); err != nil {
				return "", err
			}
		case "listen":
			tap, err := t.listen(rest)
			if err != nil {
				return "", err
			}
			t.taps = append(t.taps, tap)
		case "unlisten":
			for _, tap := range t.taps {
				tap.close()
			}
			t.taps = nil
		case "sleep":
			d, err := time.ParseDuration(rest)
			if err != nil {
				return "", err
			}
			time.Sleep(d)
		default:
			said.WriteString(complaint(t.dut.Shell(waiting(commands[0])), word))
		}
		commands = commands[n:]
	}
	return said.String(), nil
}

// waiting makes the tools of legacy tables wait for their lock, which all namespaces share.
func waiting(command string) string {
	return strings.NewReplacer("tables-legacy-restore", "tables-legacy-restore -w", "tables-legacy ", "tables-legacy -w ").Replace(command)
}

// toolOf is "ip", "ip -6", "tc" or "bridge": what one process can run in a batch.
func toolOf(command string) string {
	switch {
	case strings.HasPrefix(command, "ip -6 "):
		return "ip -6"
	case strings.HasPrefix(command, "ip "):
		return "ip"
	case strings.HasPrefix(command, "tc "):
		return "tc"
	case strings.HasPrefix(command, "bridge "):
		return "bridge"
	}
	return ""
}

// batch runs commands of one tool; those that fail are part of the answer.
func (t *twin) batch(tool string, commands []string) (string, error) {
	var input strings.Builder
	for _, c := range commands {
		input.WriteString(strings.TrimPrefix(c, tool+" ") + "\n")
	}
	words := append(strings.Fields(tool), "-force", "-batch", "-")
	cmd := exec.Command(words[0], words[1:]...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input.String()), &out, &out
	if err := t.dut.Start(cmd); err != nil {
		return "", err
	}
	cmd.Wait() // the status says only that some line failed; the output says which
	if out.Len() == 0 {
		return "", nil
	}
	return tool + ": " + out.String(), nil
}

// complaint is an error of a command without the namespace's name in it.
func complaint(err error, word string) string {
	if err == nil {
		return ""
	}
	_, after, _ := strings.Cut(err.Error(), "exit status")
	return word + ": exit status" + after + "\n"
}
