// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// change sends a request that changes something, and waits for the kernel's yes.
func change(t testing.TB, r *Reader, typ, flags uint16, fixed []byte, fill func(ae *netlink.AttributeEncoder)) {
	t.Helper()
	q := request{proto: unix.NETLINK_ROUTE, typ: typ, flags: flags | unix.NLM_F_ACK, body: body(fixed, fill)}
	if err := r.live.netlink(q, func(uint16, []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func toggleAddr(t testing.TB, r *Reader, index int, add bool) {
	fixed := make([]byte, unix.SizeofIfAddrmsg)
	fixed[0], fixed[1] = unix.AF_INET, 24
	put32(fixed, 4, uint32(index))
	typ, flags := uint16(unix.RTM_DELADDR), uint16(0)
	if add {
		typ, flags = unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	change(t, r, typ, flags, fixed, func(ae *netlink.AttributeEncoder) { ae.Bytes(unix.IFA_LOCAL, []byte{10, 77, 0, 1}) })
}

func setMTU(t testing.TB, r *Reader, index, mtu int) {
	fixed := make([]byte, unix.SizeofIfInfomsg)
	put32(fixed, 4, uint32(index))
	change(t, r, unix.RTM_NEWLINK, 0, fixed, func(ae *netlink.AttributeEncoder) { ae.Uint32(unix.IFLA_MTU, uint32(mtu)) })
}

// TestReactionTime measures, after a change was made, how long Wait and Read take together, in a small network and in one
// with many links. The bound is generous, for busy machines; the log has the figures.
func TestReactionTime(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many links")
	}
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{})
	for _, links := range []int{5, 500} {
		if links > 5 {
			batch := ""
			for i := range links / 2 {
				batch += fmt.Sprintf("link add v%d type veth peer name w%d\n", i, i)
			}
			ns.batch(t, batch)
		}
		n, err := r.Read(All)
		if err != nil {
			t.Fatal(err)
		}
		quiet(t, r)
		index := n.LinkByName("e0").Index
		for _, c := range []struct {
			what string
			make func(i int)
		}{
			{"address", func(i int) { toggleAddr(t, r, index, i%2 == 0) }},
			{"link", func(i int) { setMTU(t, r, index, 1400+i%2) }},
			{"full read", nil},
		} {
			var took []time.Duration
			for i := range 60 {
				if c.make != nil {
					c.make(i)
				}
				start := time.Now()
				p := All
				if c.make != nil {
					if p, err = r.Wait(time.Second); err != nil || p == 0 {
						t.Fatal(p, err)
					}
				}
				if _, err := r.Read(p); err != nil {
					t.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			median := medianOf(took)
			t.Logf("%d links, %s: %s", links, c.what, median)
			if c.make != nil && median > 5*time.Millisecond {
				t.Errorf("%d links: reading a change of one %s takes %s", links, c.what, median)
			}
		}
	}
}

func medianOf(d []time.Duration) time.Duration {
	for i := range d {
		for j := i; j > 0 && d[j] < d[j-1]; j-- {
			d[j], d[j-1] = d[j-1], d[j]
		}
	}
	return d[len(d)/2]
}

// TestManyRoutes: reading many routes must not cost memory, and their churn must be followed.
func TestManyRoutes(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many routes")
	}
	count := 100_000
	if os.Getenv("KSTATE_ROUTES") != "" {
		fmt.Sscan(os.Getenv("KSTATE_ROUTES"), &count)
	}
	ns := namespace(t)
	ns.run(t, router)
	r := open(t, Options{})
	n, err := r.Read(All)
	if err != nil {
		t.Fatal(err)
	}
	quiet(t, r)
	index := n.LinkByName("e0").Index
	base := n.Routes.Count4
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var following time.Duration
	follow := func() {
		t.Helper()
		for more := true; more; {
			had := r.Stats().Events
			start := time.Now()
			if p, err := r.Wait(0); err != nil || p&Routes != 0 {
				t.Fatal(p, err, r.Stats())
			}
			following += time.Since(start)
			more = had != r.Stats().Events
		}
	}
	start := time.Now()
	fixed := make([]byte, unix.SizeofRtMsg)
	fixed[0], fixed[1], fixed[4], fixed[5], fixed[7] = unix.AF_INET, 32, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RTN_UNICAST
	for i := range count {
		change(t, r, unix.RTM_NEWROUTE, unix.NLM_F_CREATE, append([]byte(nil), fixed...), func(ae *netlink.AttributeEncoder) {
			ae.Bytes(unix.RTA_DST, []byte{172, byte(16 + i>>16), byte(i >> 8), byte(i)})
			ae.Uint32(unix.RTA_OIF, uint32(index))
		})
		if i%2000 == 1999 {
			follow()
		}
	}
	t.Logf("%d routes made in %s", count, time.Since(start))
	follow()
	t.Logf("an event takes %s", following/time.Duration(count))
	if n, err = r.Read(Routes); err != nil || n.Routes.Count4 != base+count {
		t.Errorf("%d routes by events, want %d (%v)", n.Routes.Count4, base+count, err)
	}
	r.routes.valid = false
	start = time.Now()
	if n, err = r.Read(Routes); err != nil || n.Routes.Count4 != base+count {
		t.Errorf("%d routes by reading, want %d (%v)", n.Routes.Count4, base+count, err)
	}
	took := time.Since(start)
	if after := heap(); after > before+4<<20 {
		t.Errorf("%d routes cost %d bytes of memory", count, after-before)
	}
	t.Logf("read in %s", took)
}
