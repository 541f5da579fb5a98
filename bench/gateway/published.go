// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shuntnet/shunt/bench/measure"
	"github.com/shuntnet/shunt/bench/suite"
	"github.com/shuntnet/shunt/internal/graph"
	"github.com/shuntnet/shunt/internal/lab"
)

var publishedSection = suite.Section{
	Name:   "published",
	Title:  "A published port",
	Budget: budget(90),
	About: "HTTP requests by eight kept connections (Go's client and server, answers of 1 KiB) from a host outside to a container by its published port, through a bridge, with the rules that dockerd 28 writes for it; " +
		"with br_netfilter off, and on, as dockerd sets it. Client, router and server share two CPUs, so that requests per second show what of all work forwarding was.",
	Run: runPublished,
}

const (
	publishedClients = 8
	publishedAt      = "192.0.2.1:8080"
	publishedRules   = `*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.18.0.0/16 ! -o br0 -j MASQUERADE
-A DOCKER ! -i br0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.18.0.2:80
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-BRIDGE - [0:0]
:DOCKER-CT - [0:0]
:DOCKER-FORWARD - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER-FORWARD -j DOCKER-CT
-A DOCKER-FORWARD -j DOCKER-BRIDGE
-A DOCKER-FORWARD -i br0 -j ACCEPT
-A DOCKER-CT -o br0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-BRIDGE -o br0 -j DOCKER
-A DOCKER -d 172.18.0.2/32 ! -i br0 -o br0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER ! -i br0 -o br0 -j DROP
COMMIT
`
	publishedBridge = `link add br0 type bridge
address add 172.18.0.1/16 dev br0
link set veth1 master br0
link set br0 up
`
)

// publishedCases are the ways to set br_netfilter.
var publishedCases = []struct{ name, calls string }{{"br_netfilter off", "0"}, {"br_netfilter on", "1"}}

func publishedHost() lab.Topology {
	end := func(node, name string, addrs ...string) lab.End {
		e := lab.End{Node: node, Name: name, Quiet: true, Receive: lab.ReceiveGRO}
		for _, a := range addrs {
			e.Addrs = append(e.Addrs, netip.MustParsePrefix(a))
		}
		return e
	}
	return lab.Topology{
		Nodes: []lab.Node{
			{Name: lab.Dut, Sysctls: []string{"net.ipv4.ip_forward=1"}},
			{Name: "container", Commands: []string{"ip route add default via 172.18.0.1"}}, {Name: "outside"},
		},
		Links: []lab.Link{
			{A: end(lab.Dut, "veth1"), B: end("container", "eth0", "172.18.0.2/16")},
			{A: end(lab.Dut, "eth0", "192.0.2.1/24"), B: end("outside", "eth0", "192.0.2.2/24")},
		},
	}
}

func runPublished(b *suite.Bench) error {
	for _, c := range publishedCases {
		if err := b.Part(c.name, func() error { return measurePublished(b, c.name, c.calls) }); err != nil {
			return err
		}
	}
	return nil
}

func measurePublished(b *suite.Bench, c, calls string) error {
	var turns []measure.Turn
	for _, variant := range []string{suite.LinuxGRO, "shunt"} {
		n, err := publishing(b, calls)
		if err != nil {
			return err
		}
		if variant != suite.LinuxGRO {
			if _, err := b.StartEngine(n.Node(lab.Dut), graph.Policy{Hook: "auto"}); err != nil {
				return err
			}
		}
		client, err := serve(b, n)
		if err != nil {
			return err
		}
		turns = append(turns, measure.Turn{Name: variant, Run: func(set *measure.Set) error {
			rate, err := requests(b, client)
			if err == nil {
				set.Add(c, variant, "rate", "requests/s", rate)
			}
			return err
		}})
	}
	return b.Turns(c, extents[b.Size.Name].rounds, turns)
}

// publishing builds the host, with br_netfilter as said.
func publishing(b *suite.Bench, calls string) (*lab.Net, error) {
	n, err := lab.Build(lab.UniquePrefix("bench"), publishedHost())
	if err != nil {
		return nil, err
	}
	b.Later(n.Close)
	router := n.Node(lab.Dut)
	if err := errors.Join(router.Feed(publishedBridge, "ip -batch -"), router.Feed(publishedRules, "iptables-restore")); err != nil {
		return nil, err
	}
	err = router.Sysctl("net.bridge.bridge-nf-call-iptables=" + calls)
	if calls == "0" && errors.Is(err, os.ErrNotExist) { // br_netfilter is not loaded
		err = nil
	}
	return n, err
}

// serve starts the container's server and returns a client outside.
func serve(b *suite.Bench, n *lab.Net) (*http.Client, error) {
	l, err := n.Node("container").Listen("tcp4", "172.18.0.2:80")
	if err != nil {
		return nil, err
	}
	answer := strings.Repeat("x", 1024)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, answer) })}
	go server.Serve(l)
	b.Later(server.Close)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return n.Node("outside").Dial(ctx, net.Dialer{Timeout: 5 * time.Second}, network, addr)
	}
	transport := &http.Transport{DialContext: dial, MaxIdleConnsPerHost: publishedClients}
	b.Later(func() error { transport.CloseIdleConnections(); return nil })
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}, nil
}

// requests counts what the clients get in a second.
func requests(b *suite.Bench, client *http.Client) (float64, error) {
	var got atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	ends := make(chan error, publishedClients)
	for range publishedClients {
		go func() {
			for ctx.Err() == nil {
				r, err := client.Get("http://" + publishedAt + "/")
				if err == nil {
					_, err = io.Copy(io.Discard, r.Body)
					err = errors.Join(err, r.Body.Close())
				}
				if err != nil {
					ends <- err
					return
				}
				got.Add(1)
			}
			ends <- nil
		}()
	}
	time.Sleep(2 * b.Size.Warm)
	start, before := time.Now(), got.Load()
	time.Sleep(2 * b.Size.Measure)
	rate := float64(got.Load()-before) / time.Since(start).Seconds()
	cancel()
	var err error
	for range publishedClients {
		err = errors.Join(err, <-ends)
	}
	return rate, err
}
