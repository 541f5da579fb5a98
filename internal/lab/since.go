// SPDX-License-Identifier: Apache-2.0

package lab

// Since says which kernels have something that tests need, by the option that builds it and the version that brought it (of devices: as `ip link add` makes
// them), for the skips that tell what a kernel lacks after trying it; "" for what is not known.
func Since(what string) string {
	return map[string]string{
		"bond":               "CONFIG_BONDING, Linux 2.4.12",
		"bridge":             "CONFIG_BRIDGE, Linux 2.2",
		"bridge vlans":       "CONFIG_BRIDGE_VLAN_FILTERING, Linux 3.9",
		"dummy":              "CONFIG_DUMMY, Linux 2.6.23",
		"gre":                "CONFIG_NET_IPGRE, Linux 2.6.28",
		"gretap":             "CONFIG_NET_IPGRE, Linux 2.6.28",
		"ip6gre":             "CONFIG_IPV6_GRE, Linux 3.7",
		"ip6tnl":             "CONFIG_IPV6_TUNNEL, Linux 3.8",
		"ipip":               "CONFIG_NET_IPIP, Linux 3.8",
		"ipvlan":             "CONFIG_IPVLAN, Linux 3.19",
		"macsec":             "CONFIG_MACSEC, Linux 4.6",
		"macvlan":            "CONFIG_MACVLAN, Linux 2.6.23",
		"netfilter programs": "CONFIG_NETFILTER_BPF_LINK, Linux 6.4",
		"readable bridges":   "CONFIG_DEBUG_INFO_BTF_MODULES, Linux 5.11; bpf_probe_read_kernel, Linux 5.5",
		"sit":                "CONFIG_IPV6_SIT, Linux 3.8",
		"tcx":                "Linux 6.6",
		"vlan":               "CONFIG_VLAN_8021Q, Linux 2.4.14",
		"vrf":                "CONFIG_NET_VRF, Linux 4.3",
		"vxlan":              "CONFIG_VXLAN, Linux 3.7",
		"vxlan gpe":          "CONFIG_VXLAN, Linux 4.7",
		"vxlan vnifilter":    "CONFIG_VXLAN, Linux 5.18",
	}[what]
}
