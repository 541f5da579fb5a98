// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"slices"
	"strings"
)

// Kinds of conditions that fast packets have to meet, as kindOf names them, in rules of iptables of either kind and in rules of nft. Negated ones hold for nearly every packet.
// What else the generator has cannot be met: a packet with a routing header (rt) is Linux's, and so are packets without a connection where something tracks, which alone has
// rules that keep packets out of it (notrack; cases by hand).
var (
	wantEverywhere = []string{
		"address", "address range", "iifname", "iifname by its beginning", "oifname", "oifname by its beginning", "iifgroup", "l4proto", "port", "port range", "tcp flags",
		"icmp type-code", "mark", "mark in part", "dscp", "ttl", "length", "ether saddr", "fib saddr type", "fib daddr type", "ip frag-off", "pkttype", "set mark", "set dsfield",
	}
	wantOfTables = []string{"port list", "either port", "tos"}
	// Of verdict maps those with two addresses and three parts are looked up like sets.
	wantOfNFT = []string{
		"set of address", "set of address ranges", "set of port", "set of port ranges", "set of l4proto", "set of iifname", "set of mark", "set of fib saddr type", "set of fib saddr type . l4proto",
		"set of address . port", "set of address . port ranges", "set of address . address", "set of address . address ranges", "set of address . l4proto . port", "set of iifname . address",
		"map of address", "map of address ranges", "map of port", "map of port ranges", "map of l4proto", "map of iifname", "map of mark", "map of address . port", "map of address . address",
	}
	wantActions = []string{"counter", "accept", "drop", "return", "jump", "goto"}
	// Of conversations, in any dialect.
	wantOfTalks = []string{"ct state", "ct status", "ct direction", "ct mark", "set of ct state", "set ct mark", "set mark from ct mark"}
)

// unmet lists the kinds that no fast packet has met, those of ipsets as far as the kernel has them: of packet filters, and of conversations.
func (h hits) unmet(kinds []string) (filters, talks []string) {
	tables, every := []string{"legacy", "iptables-nft"}, []string{"legacy", "iptables-nft", "nft"}
	check := func(out *[]string, kind string, dialects ...string) {
		if !slices.ContainsFunc(dialects, func(d string) bool { return h[d+": "+kind].packets > 0 }) {
			*out = append(*out, strings.Join(dialects, " or ")+": "+kind)
		}
	}
	for _, k := range slices.Concat(wantEverywhere, wantOfTables) {
		check(&filters, k, tables...)
	}
	for _, k := range slices.Concat(wantEverywhere, wantOfNFT, []string{"continue"}) {
		check(&filters, k, "nft")
	}
	for _, k := range wantActions {
		for _, d := range every {
			check(&filters, k, d)
		}
	}
	for _, k := range kinds {
		if strings.HasPrefix(k, "ipset ") {
			check(&filters, k, tables...)
		}
	}
	for _, k := range wantOfTalks {
		check(&talks, k, every...)
	}
	return filters, talks
}
