// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// about are the cases by hand, or the whole test, that each named bug meets before all others: what is about just that. Regular expressions of names.
var about = map[string]string{
	"entries that have expired are used":                           "bridge_entries_not_in_use",
	"ports in every state forward":                                 "bridge_frozen_settings",
	"locked ports let everybody in":                                "bridge_frozen_settings",
	"backup ports are not asked for":                               "bridge_backup_port",
	"entries of the bridge itself are forwarded to":                "bridge_own_addresses",
	"group addresses forwarded by entries":                         "bridge_entries",
	"groups as senders forwarded":                                  "bridge_learning_off",
	"a promiscuous bridge gets nothing":                            "bridge_frozen_listeners",
	"a port's mtu ignored":                                         "bridge_mtu",
	"padding of bridged packets not cut":                           "bridge_shown_frames",
	"bridged packets are not shown to rules":                       "bridge_shown_to_rules",
	"fragments shown to rules":                                     "bridge_shown_to_rules,_fragments",
	"a bridge takes one off the TTL that rules see":                "bridge_shown_to_rules_by_ttl",
	"rules behind the route ask for the port":                      "bridge_shown_to_rules",
	"blocked ports routed to":                                      "bridge_routes_frozen_settings",
	"a promiscuous bridge routed past":                             "bridge_routes_frozen_entries",
	"listeners on a bridge routed past":                            "bridge_frozen_listeners",
	"a port's mtu ignored when routed to":                          "bridge_routes_frozen_mtu",
	"routed to the wrong port":                                     "bridge_routes",
	"neighbours behind a bridge not kept alive":                    "TestOnto",
	"back by the same port without hairpin mode":                   "nat_hairpin_shown",
	"between isolated ports by translation":                        "nat_hairpin_shown",
	"what is sent back into a bridge keeps its receiver's address": "nat_hairpin_shown",
	"bridged to another receiver where the frame went":             "nat_hairpin_shown,_routed",
	"a call after a reset belongs to the old connection":           "conntrack_reset",
	"any call ends the connection of its ports":                    "conntrack_(reset|call)",
	"a mask that leaves nothing leaves all":                        "rules_registers_masked",
	"who lacks a field is in no set":                               "rules_registers_not",
	"a tunnel leaves by the device that it names":                  "overlay_underlay",
	"a rule that replaces another goes on counting":                "rules_registers_replaced",
	"a connection is looked up in zone 0":                          "conntrack_zone_(nft|overlap)",
	"a zone for one direction is for both":                         "conntrack_zone_(reply|original)",
	"the mark goes to the connection in zone 0":                    "conntrack_zone_nft",
	"the last zone counts":                                         "conntrack_zone_once",
	"another mark for a connection is not saved":                   "rules_of_connections_saved_marks",
	"the other end of a veth has another address":                  "TestOnto",
	"the other end of a veth is smaller":                           "TestPeers",
	"rules that write into sets do nothing":                        "rules_edge_written_down_nft",
	"targets that write into ipsets do nothing":                    "rules_edge_written_down_iptables",
	"a negated lookup in a set is a plain one":                     "rules_live_ipset_(legacy|nft)",
	"short transport headers come to rules":                        "rules_edge_short_headers_.*",
	"exceptions in sets are elements":                              "rules_live_ipset_legacy",
	"elements of sets do not expire":                               "rules_live_ipset_(legacy|frozen|three|iface)",
	"an exception in one set of a list ends the list":              "rules_live_ipset_legacy",
	"sets of the other family are asked":                           "rules_live_ipset_(three|iface|frozen)",
	"messages have port 0 in sets":                                 "rules_live_ipset_legacy",
	"exceptions of two networks are elements":                      "rules_live_ipset_nets",
	"pairs of prefix lengths beyond the bound are taken for none":  "rules_live_ipset_nets",
	"sets that do not have the packet match":                       "rules_live_ipset_legacy",
	"devices that rules tell from others are like those":           "rules_edge_device_groups",
	"counters at ingress forget the padding":                       "rules_netdev_counters",
	"senders of another network are remembered as the same":        "remembered_rules",
	"marks are no part of what verdicts are remembered by":         "remembered_rules",
	"types of ICMP are no part of what verdicts are remembered by": "remembered_rules",
	"what asks for the TTL is remembered":                          "remembered_rules",
	"what changes packets is remembered":                           "remembered_rules_that_change_packets",
	"remembered verdicts count nothing":                            "remembered_rules",
	"changed rules have the number of the old ones":                "remembered_rules",
	"the sender's route may lead anywhere":                         "rules_edge_route_back_nft",
}

// aboutIt is what a mutant meets first, "" if nothing is about it alone.
func aboutIt(m mutant) string {
	what, _ := strings.CutPrefix(m.Operator, "named (")
	return about[strings.TrimSuffix(what, ")")]
}
