// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inMachine skips a test anywhere but in a machine that vm.sh started: what follows loads programs
// and makes devices of kinds that the development machine's kernel may not have.
func inMachine(t *testing.T) {
	t.Helper()
	if os.Getenv("SHUNT_VM") != "1" {
		t.Skip("runs only inside a virtual machine: make test-vm")
	}
}

// namespace puts the test into an empty network namespace. Its thread is never unlocked, so it ends
// with the test, and the namespace with it.
func namespace(t *testing.T) {
	t.Helper()
	inMachine(t)
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	t.Cleanup(func() { ns.Close() })
}

// release is the running kernel's version: major, minor.
func release(t *testing.T) (major, minor int) {
	t.Helper()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(uts.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatalf("kernel release: %v", err)
	}
	return major, minor
}

// atLeast says whether the running kernel is major.minor or newer.
func atLeast(t *testing.T, major, minor int) bool {
	t.Helper()
	haveMajor, haveMinor := release(t)
	return haveMajor > major || haveMajor == major && haveMinor >= minor
}

// vethPair makes two connected devices and waits until they carry frames: the kernel starts a
// device's queues some time after its carrier came, and drops in silence what is sent before.
func vethPair(t *testing.T, name, peer string) (netlink.Link, netlink.Link) {
	t.Helper()
	addLink(t, &netlink.Veth{LinkAttrs: attrs(name), PeerName: peer})
	near, far := up(t, name), up(t, peer)
	for _, l := range []netlink.Link{near, far} {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			now, err := netlink.LinkByIndex(l.Attrs().Index)
			if err != nil {
				t.Fatalf("looking at %s: %v", l.Attrs().Name, err)
			}
			if now.Attrs().OperState == netlink.OperUp {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is %s after 10 s", l.Attrs().Name, now.Attrs().OperState)
			}
		}
	}
	return near, far
}

func attrs(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

func addLink(t *testing.T, l netlink.Link) {
	t.Helper()
	if err := netlink.LinkAdd(l); err != nil {
		t.Fatalf("making %s of kind %s: %v", l.Attrs().Name, l.Type(), err)
	}
}

func up(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatalf("looking for %s: %v", name, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatalf("setting %s up: %v", name, err)
	}
	return l
}

// send puts one frame on the wire of a device, as a packet socket does.
func send(t *testing.T, from netlink.Link, frame []byte) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("opening a packet socket: %v", err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrLinklayer{Ifindex: from.Attrs().Index}
	if err := unix.Sendto(fd, frame, 0, to); err != nil {
		t.Fatalf("sending on %s: %v", from.Attrs().Name, err)
	}
}

// testFrame is a broadcast frame of an experimental ethertype: nothing in Linux answers it.
func testFrame(source net.HardwareAddr) []byte {
	frame := make([]byte, 60)
	copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	copy(frame[6:], source)
	frame[12], frame[13] = 0x88, 0xb5
	return frame
}
