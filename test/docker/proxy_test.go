// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"testing"
)

// composed is a stack as compose makes it: a web server that others reach by a port of the host and that alone reaches the database, and a client beside it. And two
// containers at docker0, of which one is published. Docker publishes by the first of a container's networks, in the order of their names.
var composed = stack{
	[][]string{{"edge", "--subnet", "172.20.1.0/24"}, {"store", "--subnet", "172.20.2.0/24"}},
	[]container{
		{name: "zeroa", network: "bridge"},
		{name: "zerob", network: "bridge", publish: []string{"-p", "8080:80", "-p", "8080:80/udp"}},
		{name: "db", network: "store"},
		{name: "web", network: "edge", publish: []string{"-p", "8081:80"}, also: "store"},
		{name: "client", network: "edge"},
	},
}

// TestWithoutProxy is about published ports without Docker's proxy (--userland-proxy=false), where they are the rules' alone: from beyond, from a container to itself, to
// another of its network and of another network, from the host; and within a stack as compose makes it.
func TestWithoutProxy(t *testing.T) {
	w := newTwins(t, composed, nil, "--userland-proxy=false")
	w.conversation(together("without the proxy", 1, size()/4))
	if *long {
		w.conversation(together("without the proxy, and more", 1, size()))
		bare := together("without proxy and br_netfilter", 0, size())
		bare.works = 18 // what comes back to the same bridge is not translated back then, in Linux, so that zeroa has nobody to send much to
		delete(bare.fast, "zeroa")
		w.conversation(bare)
		w.leftovers()
	}
}

// together is the talk of the composed stack.
func together(title string, filtering, size int) talk {
	k := talk{title: title, filtering: filtering, works: 20, names: [][2]string{{"web", "db"}, {"client", "web"}, {"client", "db"}}}
	ask := func(from, to string, words ...string) {
		for _, w := range words {
			k.questions = append(k.questions, probe{from, to, w})
		}
	}
	large := func(port int) []string {
		return []string{fmt.Sprintf("get {to}:%d %d", port, size), fmt.Sprintf("put {to}:%d %d", port, size), fmt.Sprintf("who {to}:%d", port)}
	}
	datagrams := "udp {to}:8080 200 1000 0"
	ask("outside", "host", large(8080)...)
	ask("outside", "host", large(8081)...)
	ask("outside", "host", datagrams)
	for _, from := range []string{"zeroa", "zerob"} { // another of its network, and itself
		ask(from, "host", large(8080)...)
		ask(from, "host", datagrams)
	}
	ask("client", "host", large(8081)...)
	ask("web", "host", large(8081)...)
	ask("web", "web in store", "who {to}:80") // by itself
	ask("zeroa", "host", "get {to}:8081 1000000", "who {to}:8081")
	ask("client", "host", "get {to}:8080 1000000", "who {to}:8080")
	ask("db", "host", "get {to}:8081 1000000", "who {to}:8081")
	ask("host", "host", "get {to}:8080 1000000", "who {to}:8081")
	ask("web", "db", large(80)...)
	ask("db", "web in store", large(80)...)
	ask("client", "web", large(80)...)
	ask("db", "outside", large(80)...)
	ask("web", "outside", "get {to}:80 1000000", "who {to}:80")
	blocked := []string{"who {to}:80", "udp {to}:80 2 100 0"}
	ask("client", "db", blocked...)
	ask("db", "web", blocked...)
	ask("outside", "db", blocked...)
	ask("zeroa", "web", blocked...)
	k.counted = []probe{
		{"outside", "host", "udp {to}:8080 200 500 2001"}, {"zeroa", "host", "udp {to}:8080 200 500 2002"}, {"zerob", "host", "udp {to}:8080 200 500 2003"},
		{"web", "db", "udp {to}:80 200 100 2004"}, {"client", "web", "udp {to}:80 200 100 2005"},
	}
	few := size / 16 // as in apart: each of them sends several times as much
	k.fast = map[string]int{"outside": few, "web": few, "web in store": few, "db": few, "client": few, "zeroa": few, "zerob": few}
	return k
}
