// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/btf"

	"github.com/shuntnet/shunt/internal/bpfobj"
)

// knowBridges reads what the kernel tells of its bridges.
func (f *Features) knowBridges(kernel []*btf.Spec) {
	f.tried.Bridges, f.Bridge, f.NoBridge = false, false, untried
	f.bridges, f.lacksBridgeType = bridgeLayout(kernel)
}

// meetBridges finds out whether programs can read the tables of this kernel's bridges, and says what is against it.
func (f *Features) meetBridges(o *objects) error {
	if f.Peek == bpfobj.PeekNone {
		return errors.New("kernel memory cannot be read")
	}
	if f.lacksBridgeType != nil {
		return f.lacksBridgeType
	}
	at := f.bridges
	if err := load(o, bpfobj.Config{Peek: f.Peek, KernCtx: f.Ctx, Bridge: 1, BridgeVlans: 1, Bridges: at}); err != nil {
		return err
	}
	if err := load(o, bpfobj.Config{Peek: f.Peek, KernCtx: f.Ctx, Onto: bpfobj.OntoVLANs, Bridges: at}); shortage(err) != nil {
		return err
	} else if err != nil {
		at.DevNode = 0
	}
	o.bridges, f.BridgeVLANs = at, at.PortVlans != 0
	return nil
}

// meetBridges looks again where a module has come since: with the first bridge, or the first veth.
func (d *Datapath) meetBridges() {
	came := func(tried *bool, module string) bool {
		if *tried || !moduleLive(module) {
			return false
		}
		*tried = true
		return true
	}
	o := d.objects
	bridge := d.features.lacksBridgeType != nil && came(&o.triedBridges, bridgeModule)
	veth := d.features.lacksBridgeType == nil && d.features.bridges.VethEnd == 0 && came(&o.triedVeth, vethModule)
	if !bridge && !veth {
		return
	}
	kernel, err := kernelTypes()
	if err != nil {
		d.log.Warn("frames of bridges go to Linux", "err", err)
		return
	}
	d.features.knowBridges(kernel)
}

// vlanLayout adds where a bridge keeps its VLANs, if programs can follow them there; its options are found with the others.
func vlanLayout(specs []*btf.Spec, out *bpfobj.Bridges) {
	const pointer, word, half, char = 8, 4, 2, 1
	t := layoutTypes{specs: specs}
	at := *out
	at.PortVlans, at.BrVlanProto = t.at("net_bridge_port", "vlgrp", pointer), t.at("net_bridge", "vlan_proto", half)
	at.GroupTable = t.at("net_bridge_vlan_group", "vlan_hash", 0) + t.at("rhashtable", "tbl", pointer)
	at.GroupPvid, at.GroupPvidState = t.at("net_bridge_vlan_group", "pvid", half), t.at("net_bridge_vlan_group", "pvid_state", char)
	at.VlanNode, at.VlanId = t.at("net_bridge_vlan", "vnode", pointer), t.at("net_bridge_vlan", "vid", half)
	at.VlanFlags, at.VlanState = t.at("net_bridge_vlan", "flags", half), t.at("net_bridge_vlan", "state", char)
	at.DevVlans = t.at("net_device", "vlan_info", pointer)
	at.VlansDevices = t.at("vlan_info", "grp", 0) + t.at("vlan_group", "nr_vlan_devs", word)
	at.BrVlans = t.at("net_bridge", "vlgrp", pointer)
	private := t.private()
	at.TagProto, at.TagMaps = private+t.at("vlan_dev_priv", "vlan_proto", half), private+t.at("vlan_dev_priv", "nr_egress_mappings", word)
	at.TagDevice = private + t.at("vlan_dev_priv", "real_dev", pointer)
	if private+t.at("vlan_dev_priv", "vlan_id", half) != at.TagProto+half {
		t.fail("protocol and number of a VLAN device are not side by side")
	}
	if t.err == nil {
		*out = at
	}
}

// plainOptions are the options of a bridge at which known unicast is forwarded as without them; all others must be off, but for those that ask for
// br_netfilter.
var plainOptions = []string{
	"BROPT_GROUP_ADDR_SET", "BROPT_MULTICAST_ENABLED", "BROPT_MULTICAST_QUERIER", "BROPT_MULTICAST_QUERY_USE_IFADDR",
	"BROPT_MULTICAST_STATS_ENABLED", "BROPT_HAS_IPV6_ADDR", "BROPT_VLAN_STATS_PER_PORT", "BROPT_NO_LL_LEARN", "BROPT_VLAN_BRIDGE_BINDING",
	"BROPT_MDB_OFFLOAD_FAIL_NOTIFICATION", "BROPT_NF_CALL_ARPTABLES", "BROPT_MTU_SET_BY_USER",
}

// bridgeLayout reads from the kernel's type information where its bridge keeps what programs read.
func bridgeLayout(specs []*btf.Spec) (out bpfobj.Bridges, err error) {
	t := layoutTypes{specs: specs}
	const pointer, long, word, half, char = 8, 8, 4, 2, 1
	out = bpfobj.Bridges{
		Known:    1,
		DevFlags: t.at("net_device", "flags", word), DevPrivFlags: t.at("net_device", "priv_flags", 0), DevIfindex: t.at("net_device", "ifindex", word),
		DevMtu: t.at("net_device", "mtu", word), DevHandler: t.at("net_device", "rx_handler_data", pointer),
		PortBridge: t.at("net_bridge_port", "br", pointer), PortDev: t.at("net_bridge_port", "dev", pointer), PortState: t.at("net_bridge_port", "state", char),
		PortFlags: t.at("net_bridge_port", "flags", long), PortBackup: t.at("net_bridge_port", "backup_port", pointer),
		BrDev: t.at("net_bridge", "dev", pointer), BrOptions: t.at("net_bridge", "options", long), BrAgeing: t.at("net_bridge", "ageing_time", long),
		BrChanging: t.at("net_bridge", "topology_change", char), BrTable: t.at("net_bridge", "fdb_hash_tbl", 0) + t.at("rhashtable", "tbl", pointer),
		TblSize: t.at("bucket_table", "size", word), TblNest: t.at("bucket_table", "nest", word), TblSeed: t.at("bucket_table", "hash_rnd", word),
		TblNext: t.at("bucket_table", "future_tbl", pointer), TblBuckets: t.at("bucket_table", "buckets", 0),
		FdbNode: t.at("net_bridge_fdb_entry", "rhnode", pointer), FdbPort: t.at("net_bridge_fdb_entry", "dst", pointer),
		FdbKey: t.at("net_bridge_fdb_entry", "key", 8), FdbFlags: t.at("net_bridge_fdb_entry", "flags", long), FdbUpdated: t.at("net_bridge_fdb_entry", "updated", long),
	}
	if t.at("net_bridge_fdb_key", "vlan_id", half) != 6 || t.at("rhash_head", "next", pointer) != 0 {
		t.fail("the key of an entry is not as expected")
	}
	if t.err != nil {
		return bpfobj.Bridges{}, t.err
	}
	optional := layoutTypes{specs: specs}
	out.PortDomain = optional.at("net_bridge_port", "hwdom", word)
	peerLayout(specs, &out)
	ontoLayout(specs, &out)
	vlanLayout(specs, &out)
	var options *btf.Enum
	if !slices.ContainsFunc(specs, func(s *btf.Spec) bool { return s.TypeByName("net_bridge_opts", &options) == nil }) {
		return bpfobj.Bridges{}, errors.New("no enum net_bridge_opts")
	}
	out.Options = ^uint64(0)
	for _, v := range options.Values {
		bit := uint64(1) << v.Value
		switch {
		case v.Name == "BROPT_VLAN_ENABLED":
			out.Filtering = bit
			continue
		case v.Name == "BROPT_VLAN_STATS_ENABLED":
			out.Counting = bit
		case v.Name == "BROPT_NF_CALL_IPTABLES":
			out.Call4 = bit
		case v.Name == "BROPT_NF_CALL_IP6TABLES":
			out.Call6 = bit
		case !slices.Contains(plainOptions, v.Name):
			continue
		}
		out.Options &^= bit
	}
	return out, nil
}

// peerLayout adds where a veth keeps its other end, if programs may send frames there (bpf_redirect_peer). Before 6.7 the kernel does not count
// them where they arrive; the type of a device's counters came with that.
func peerLayout(specs []*btf.Spec, out *bpfobj.Bridges) {
	const pointer = 8
	t := layoutTypes{specs: specs}
	private := t.private()
	net := t.at("net_device", "nd_net", pointer)
	addr := t.at("net_device", "dev_addr", pointer)
	// Not in xdp_state, where a program that is attached by a link is not.
	native, generic := private+t.at("veth_priv", "_xdp_prog", pointer), t.at("net_device", "xdp_prog", pointer)
	peer := private + t.at("veth_priv", "peer", pointer)
	if t.err != nil {
		return
	}
	out.VethEnd, out.DevXdpSkb = peer, generic
	if t.at("net_device", "pcpu_stat_type", 0); t.err == nil {
		out.DevNet, out.DevAddr, out.DevXdp, out.VethPeer = net, addr, native, peer
	}
}

// ontoLayout adds where the kernel has its devices and a bridge what belongs to it, if programs may look for ports from a bridge's own device.
func ontoLayout(specs []*btf.Spec, out *bpfobj.Bridges) {
	const pointer, list = 8, 16
	t := layoutTypes{specs: specs}
	node := t.at("net_device", "index_hlist", list)
	taps := t.at("net_device", "ptype_all", list)
	devices := t.at("net", "dev_index_head", pointer)
	if t.at("hlist_node", "next", pointer) != 0 || t.at("list_head", "next", pointer) != 0 {
		t.fail("lists are not as expected")
	}
	if private := t.private(); t.err == nil {
		out.DevNode, out.DevTaps, out.DevPrivate, out.NetDevices = node, taps, private, devices
	}
}

// private is where a driver's own part of a device begins: netdev_priv().
func (t *layoutTypes) private() uint16 {
	const align = 32 // NETDEV_ALIGN
	return uint16(t.size("net_device")+align-1) &^ (align - 1)
}

// size is that of a structure in bytes.
func (t *layoutTypes) size(name string) int {
	for _, s := range t.specs {
		var st *btf.Struct
		if s.TypeByName(name, &st) == nil {
			return int(st.Size)
		}
	}
	return 0
}

// layoutTypes finds members of the kernel's structures, also in those without a name inside them. The first that is not as the data path expects is
// remembered.
type layoutTypes struct {
	specs []*btf.Spec
	err   error
}

func (t *layoutTypes) fail(format string, args ...any) {
	if t.err == nil {
		t.err = fmt.Errorf(format, args...)
	}
}

// at is the offset in bytes of a member that has to have a size in bytes, 0 for any.
func (t *layoutTypes) at(name, member string, size int) uint16 {
	for _, s := range t.specs {
		var st *btf.Struct
		if s.TypeByName(name, &st) != nil {
			continue
		}
		m, offset, ok := find(st.Members, member)
		if !ok {
			t.fail("struct %s has no %s", name, member)
			return 0
		}
		if n, err := btf.Sizeof(m.Type); err != nil || size != 0 && n != size || offset%8 != 0 || offset/8 > 0xffff {
			t.fail("struct %s: %s is not as expected (%d bytes at bit %d)", name, member, n, offset)
		}
		return uint16(offset / 8)
	}
	t.fail("no struct %s", name)
	return 0
}

// find looks a member up, with its offset in bits.
func find(members []btf.Member, name string) (btf.Member, btf.Bits, bool) {
	for _, m := range members {
		if m.Name == name {
			return m, m.Offset, true
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch in := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = in.Members
		case *btf.Union:
			inner = in.Members
		}
		if found, offset, ok := find(inner, name); ok {
			return found, m.Offset + offset, true
		}
	}
	return btf.Member{}, 0, false
}
