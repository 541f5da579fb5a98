// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/lib/examples/function"
	"github.com/shuntnet/shunt/lib/examples/function/functest"
)

func TestMain(m *testing.M) { os.Exit(functest.Main(m)) }

// TestCounts: of 5,000 packets of 300 flows, IPv4 and IPv6, each flow's answer is what was sent, or a little more.
func TestCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var asked function.Flows
	sent := map[function.Flow]uint32{}
	f := counter(77, &asked)
	site := functest.Attach(t, f)
	var frames [][]byte
	for range 5000 {
		n := int(r.ExpFloat64() * 50)
		eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: []byte{2, 0, 0, 0, 0, 9}}
		udp := &layers.UDP{SrcPort: layers.UDPPort(1000 + n), DstPort: 53}
		text := fmt.Sprintf("udp 192.0.2.1:%d 192.0.2.2:53", 1000+n)
		if n%2 == 0 {
			frames = append(frames, lab.Packet(eth, &layers.IPv4{SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}}, udp))
		} else {
			from, to := make([]byte, 16), make([]byte, 16)
			from[0], from[15], to[0] = 0xfd, 1, 0xfd
			frames = append(frames, lab.Packet(eth, &layers.IPv6{SrcIP: from, DstIP: to}, udp))
			text = fmt.Sprintf("udp [fd00::1]:%d [fd00::]:53", 1000+n)
		}
		flow, err := function.ParseFlow(text)
		if err != nil {
			t.Fatal(err)
		}
		if sent[flow]++; sent[flow] == 1 {
			asked = append(asked, flow)
		}
	}
	site.Send(frames...)
	var got report
	site.Await("every packet counted", func() bool {
		s, err := f.Report(site.Coll)
		if err != nil {
			t.Fatal(err)
		}
		got = s.(report)
		return got.Packets >= 5000
	})
	for _, a := range got.Flows {
		if over := int64(a.AtMost) - int64(sent[a.Flow]); over < 0 || float64(over) > math.E*float64(got.Packets)/columns {
			t.Errorf("%s: %d packets sent, answer %d", a.Flow, sent[a.Flow], a.AtMost)
		}
	}
	if !strings.Contains(got.String(), "udp 192.0.2.1:") {
		t.Errorf("the report names no flow:\n%s", got)
	}
}

// TestErrors: what is wrong is said in words that help.
func TestErrors(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "wrong usage"},
		{"-dev lo extra", "wrong usage"},
		{"-dev lo -flow nonsense", "wrong usage"},
		{"-dev nosuchdevice", "`ip link` lists"},
	} {
		var out bytes.Buffer
		err := counter(1, new(function.Flows)).Run(context.Background(), strings.Fields(test.args), &out)
		if os.Geteuid() != 0 && strings.Contains(test.args, "nosuch") {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("countmin %s: %v, want %q", test.args, err, test.want)
		}
	}
}
