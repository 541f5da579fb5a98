// SPDX-License-Identifier: Apache-2.0

package function

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A Flow is struct shunt_flow of <shunt/flow.h>.
type Flow struct {
	From, To         [16]byte
	FromPort, ToPort [2]byte // in network order
	Protocol, Family uint8
	Zero             uint16
}

var protocolNames = map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6", 132: "sctp"}

func (f Flow) protocol() string {
	if name := protocolNames[f.Protocol]; name != "" {
		return name
	}
	return strconv.Itoa(int(f.Protocol))
}

func (f Flow) ends() (from, to netip.AddrPort) {
	end := func(addr [16]byte, port [2]byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom16(addr).Unmap(), binary.BigEndian.Uint16(port[:]))
	}
	return end(f.From, f.FromPort), end(f.To, f.ToPort)
}

func (f Flow) String() string {
	from, to := f.ends()
	return fmt.Sprintf("%s %s > %s", f.protocol(), from, to)
}

// MarshalJSON writes the flow as people write one.
func (f Flow) MarshalJSON() ([]byte, error) {
	from, to := f.ends()
	return json.Marshal(map[string]any{"protocol": f.protocol(), "from": from, "to": to})
}

// ParseFlow reads what String writes, but for the arrow, which may be a space: "udp 192.0.2.1:53 192.0.2.2:4000".
func ParseFlow(s string) (Flow, error) {
	fields := strings.Fields(strings.ReplaceAll(s, ">", " "))
	if len(fields) != 3 {
		return Flow{}, fmt.Errorf("flow %q: want PROTOCOL ADDRESS:PORT ADDRESS:PORT", s)
	}
	var f Flow
	for number, name := range protocolNames {
		if name == fields[0] {
			f.Protocol = number
		}
	}
	if f.Protocol == 0 {
		number, err := strconv.ParseUint(fields[0], 10, 8)
		if err != nil {
			return Flow{}, fmt.Errorf("flow %q: protocol %q is neither a number nor tcp, udp, icmp, icmp6 or sctp", s, fields[0])
		}
		f.Protocol = uint8(number)
	}
	from, err := netip.ParseAddrPort(fields[1])
	if err != nil {
		return Flow{}, fmt.Errorf("flow %q: %w", s, err)
	}
	to, err := netip.ParseAddrPort(fields[2])
	if err != nil {
		return Flow{}, fmt.Errorf("flow %q: %w", s, err)
	}
	if from.Addr().Is4() != to.Addr().Is4() {
		return Flow{}, fmt.Errorf("flow %q: one address is IPv4 and the other is IPv6", s)
	}
	f.From, f.To, f.Family = from.Addr().As16(), to.Addr().As16(), 6
	if from.Addr().Is4() {
		f.Family = 4
	}
	binary.BigEndian.PutUint16(f.FromPort[:], from.Port())
	binary.BigEndian.PutUint16(f.ToPort[:], to.Port())
	return f, nil
}

// Flows is a flag that may be given more than once, each time with a flow.
type Flows []Flow

func (f *Flows) String() string { return fmt.Sprint([]Flow(*f)) }

// Set adds a flow.
func (f *Flows) Set(s string) error {
	flow, err := ParseFlow(s)
	if err == nil {
		*f = append(*f, flow)
	}
	return err
}

// Hash is shunt_hash64() of the flow.
func (f Flow) Hash(seed uint64) uint64 {
	var key [40]byte
	if _, err := binary.Encode(key[:], binary.NativeEndian, f); err != nil {
		panic(err) // its size is fixed
	}
	return Hash64(key[:], seed)
}

// Hash64 is shunt_hash64() of <shunt/hash.h> for keys of whole words.
func Hash64(key []byte, seed uint64) uint64 {
	const m = 0x880355f21e6d1965
	mix := func(h uint64) uint64 {
		h ^= h >> 23
		h *= 0x2127599bf4325c37
		return h ^ h>>47
	}
	h := seed ^ uint64(len(key))*m
	for ; len(key) >= 8; key = key[8:] {
		h = (h ^ mix(binary.NativeEndian.Uint64(key))) * m
	}
	return mix(h)
}

// HashSlice is slice i of so many bits of a hash, by which the rows of a count-min sketch are indexed (shunt_hash_word() of <shunt/hash.h>).
func HashSlice(h uint64, i, bits int) uint64 {
	each := 48 / bits
	if word := i / each; word > 0 {
		h *= 0x9fb21c651e98df25 + uint64(word)*0x9e3779b97f4a7c16
	}
	return h >> (64 - bits*(i%each+1)) & (1<<bits - 1)
}

// HashNth is shunt_hash_nth() of <shunt/hash.h>.
func HashNth(h uint64, i int) uint32 { return uint32(h) + uint32(i)*(uint32(h>>32)|1) }
