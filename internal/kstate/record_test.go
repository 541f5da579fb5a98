// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/shuntnet/shunt/internal/model"
	"net/netip"
)

var update = flag.Bool("update", false, "record testdata anew from this kernel (needs root)")

// recordings are the networks in testdata. Each is what its script made of the router of live_test.go.
var recordings = []struct{ name, script string }{
	{"router", ""},
	{"routes", `
		ip nexthop add id 1 via 10.1.0.2 dev e0
		ip nexthop add id 2 via 10.2.0.2 dev e1
		ip nexthop add id 10 group 1/2,3
		ip nexthop add id 11 group 1/2 type resilient buckets 8
		ip nexthop add id 12 encap ip id 42 dst 10.1.0.9 via 10.1.0.2 dev e0
		ip nexthop add id 13 blackhole
		ip route add 10.20.0.0/16 nhid 1
		ip route add 10.21.0.0/16 nhid 10
		ip route add 10.22.0.0/16 nhid 11
		ip route add 10.23.0.0/16 nhid 12
		ip route add 10.24.0.0/16 nhid 13
		ip route add 10.25.0.0/16 nexthop via 10.1.0.2 weight 2 nexthop via 10.2.0.2
		ip route add 10.26.0.0/16 via 10.1.0.2 mtu 900
		ip route add 10.27.0.0/16 via 10.1.0.2 mtu lock 900 advmss 700 realm 4
		ip route add 10.28.0.0/16 encap ip id 7 dst 10.1.0.8 via 10.1.0.2 dev e0
		ip route add local 10.29.0.0/16 dev lo table 100
		ip route add blackhole 10.30.0.0/16
		ip route add unreachable 10.31.0.0/16
		ip route add throw 10.32.0.0/16 table 100
		ip route add 10.33.0.0/16 via inet6 fd01::2 dev e0
		ip -6 route add fd20::/64 via fd01::2 mtu 1300
		ip -6 route add fd21::/64 nexthop via fd01::2 nexthop via fd02::2
		ip -6 route add prohibit fd22::/64
		ip rule add from 10.0.0.0/8 to 10.99.0.0/16 iif e0 ipproto udp dport 53 table 100 priority 10
		ip rule add fwmark 1/0xff table 101 priority 11
		ip rule add not from 10.8.0.0/16 tos 0x10 table 102 priority 12
		ip rule add oif e1 table 103 priority 13
		ip rule add uidrange 0-100 table 104 priority 14
		ip rule add table main suppress_prefixlength 0 priority 15
		ip rule add from 10.66.0.0/16 blackhole priority 16
		ip rule add l3mdev priority 17
		ip -6 rule add from fd00::/8 sport 1000-2000 ipproto tcp table 100 priority 10
		ip rule add from 10.67.0.0/16 goto 32766 priority 18
		ip rule add from 10.68.0.0/16 realms 3 table main priority 19`},
	{"nft", `
		nft -f - <<-'EOT'
		table inet filter {
			chain deny { ip saddr 192.0.2.1 drop; ct state invalid drop; }
			chain extra { drop; }
			chain unused { drop; drop; }
			chain forward { type filter hook forward priority filter; policy drop; jump deny; }
			chain empty { type filter hook prerouting priority -5; }
			chain bymap { type filter hook postrouting priority 3; ip protocol vmap { tcp : jump extra, udp : drop }; }
		}
		table ip nat { chain post { type nat hook postrouting priority srcnat; }; }
		table ip6 raw { chain pre { type filter hook prerouting priority raw; ip6 nexthdr 17 accept; }; }
		table arp a { chain in { type filter hook input priority 0; }; }
		table netdev n { chain in { type filter hook ingress device e0 priority 0; ip saddr 192.0.2.2 drop; }; }
		table ip asleep { flags dormant; chain x { type filter hook forward priority 7; drop; }; }
		EOT
		iptables-nft -A FORWARD -s 192.0.2.3 -j DROP`},
	{"legacy", `
		iptables-legacy -N USED
		iptables-legacy -N UNUSED
		iptables-legacy -A UNUSED -j DROP
		iptables-legacy -A USED -p tcp --dport 80 -j RETURN
		iptables-legacy -A USED -m limit --limit 5/s -j ACCEPT
		iptables-legacy -A FORWARD -s 192.0.2.3 -j DROP
		iptables-legacy -A FORWARD -i e0 -j USED
		iptables-legacy -A FORWARD
		iptables-legacy -P INPUT DROP
		iptables-legacy -t mangle -A PREROUTING -j MARK --set-mark 1
		ip6tables-legacy -P FORWARD DROP
		ip6tables-legacy -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT`},
	{"devices", `
		tc qdisc add dev e0 root handle 1: tbf rate 1mbit burst 10k latency 1s
		tc qdisc add dev e1 clsact
		tc filter add dev e1 egress prio 5 protocol ip u32 match u32 0 0 classid 1:1
		tc filter add dev e1 egress prio 5 protocol ip u32 match u32 1 1 classid 1:1
		tc qdisc add dev p0 root handle 7: htb
		tc filter add dev p0 parent 7: prio 9 protocol ip u32 match u32 0 0 classid 7:1
		ip link add br0 type bridge
		ip link set p1 master br0
		ip link add mv0 link e0 type macvlan mode bridge
		ip link add vx0 type vxlan id 5 remote 10.1.0.2 dstport 4789 dev e0
		ip link add tun0 type ipip remote 10.1.0.2 local 10.1.0.1 || true
		ip addr add 10.3.0.1 peer 10.3.0.2/32 dev e1
		ip link set e1 mtu 9000
		ethtool -K e0 tso off gro on
		sysctl -qw net.ipv4.conf.e0.rp_filter=2 net.ipv4.conf.e0.accept_local=1 net.ipv4.conf.e1.proxy_arp_pvlan=1
		sysctl -qw net.ipv6.conf.e0.disable_ipv6=1 net.ipv6.conf.e1.proxy_ndp=1 net.ipv6.conf.e1.seg6_enabled=1
		sysctl -qw net.ipv4.fib_multipath_hash_policy=1 net.ipv4.fib_multipath_use_neigh=1
		ip xfrm policy add src 10.99.0.0/24 dst 10.98.0.0/24 dir fwd action block
		ip xfrm policy setdefault in block || true`},
}

// stacked is a network that needs kinds of devices which not every kernel has. Its recordings come from virtual machines
// (test/vm), where -update writes to the directory of SHUNT_VM_OUT.
const stacked = `
		ip link add link e0 name e0.5 type vlan id 5
		ip link add link e0.5 name e0.5.6 type vlan id 6 protocol 802.1ad
		ip link add link e0 name e0.7 type vlan id 7 egress-qos-map 1:3
		ip link add red type vrf table 10
		ip link add bond0 type bond mode active-backup
		ip link set e1 down
		ip link set e1 master bond0
		ip link set e0.5 master red
		for i in e0.5 e0.5.6 e0.7 red bond0; do ip link set $i up; done
		ip addr add 10.5.0.1/24 dev e0.5
		ip route add 10.50.0.0/16 via 10.5.0.2 table 10
		ip link add dummy0 type dummy
		ip link add wg0 type wireguard || true
		tc qdisc add dev e0 clsact
		tc filter add dev e0 ingress prio 6 matchall action drop
		nft -f - <<-'EOT'
		table inet filter { chain forward { type filter hook forward priority filter; ct state established accept; }; }
		EOT`

func init() {
	recordings = append(recordings, struct{ name, script string }{"stacked", stacked})
}

// equal compares networks as values.
var equal = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}

// own tells the programs of these tests.
func own(_ uint32, name string) bool { return strings.HasPrefix(name, "kstate_own") }

// TestReplay decodes the recordings of testdata and compares with the models beside them. It needs no privilege.
func TestReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d recordings (%v)", len(files), err)
	}
	for _, file := range files {
		got, err := Replay(file, Options{IsOwn: own})
		if err != nil {
			t.Error(err)
			continue
		}
		golden := strings.TrimSuffix(file, "l")
		if *update {
			writeGolden(t, golden, got)
		}
		b, err := os.ReadFile(golden)
		if err != nil {
			t.Error(err)
			continue
		}
		var want model.Network
		if err := json.Unmarshal(b, &want); err != nil {
			t.Errorf("%s: %v", golden, err)
			continue
		}
		got.Filter = nil // its replays are in testdata/rules
		if diff := cmp.Diff(&want, got, equal...); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// TestRecord records each network and replays it at once: both must give the same model. With -update the recordings become
// testdata.
func TestRecord(t *testing.T) {
	for _, rec := range recordings {
		t.Run(rec.name, func(t *testing.T) {
			ns := namespace(t)
			if rec.name == "stacked" && !ns.try("ip link add x0 type veth && ip link add x1 type vrf table 10 && ip link add link x0 name x2 type vlan id 2; r=$?; ip link del x1; ip link del x0; exit $r") {
				t.Skip("this kernel makes no VRF (Linux 4.3, CONFIG_NET_VRF) or VLAN device (CONFIG_VLAN_8021Q): tried")
			}
			ns.run(t, router+rec.script)
			var buf bytes.Buffer
			recorder := NewRecorder(&buf)
			r := open(t, Options{IsOwn: own, Recorder: recorder})
			live, err := r.Read(All)
			if err != nil || recorder.Err() != nil {
				t.Fatal(err, recorder.Err())
			}
			if un := unknown(live); len(live.Faults) > 0 || un != nil {
				t.Errorf("faults %v, unknown %v", live.Faults, un)
			}
			dir := t.TempDir()
			if *update {
				dir = "testdata"
				if out := os.Getenv("SHUNT_VM_OUT"); out != "" {
					dir = out
				}
			}
			path := filepath.Join(dir, rec.name+".jsonl")
			if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			replayed, err := Replay(path, Options{IsOwn: own})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(live, replayed, equal...); diff != "" {
				t.Errorf("the replay differs (-live +replayed):\n%s", diff)
			}
			writeGolden(t, filepath.Join(dir, rec.name+".json"), live)
		})
	}
}

func writeGolden(t *testing.T, path string, n *model.Network) {
	t.Helper()
	b, err := json.MarshalIndent(n, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
