// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// struct tcmsg and numbers of linux/rtnetlink.h and linux/pkt_sched.h that x/sys/unix lacks.
const (
	tcHeader = 20

	tcaIngressBlock = 13
	tcaEgressBlock  = 14

	tcaKind    = 1
	tcaOptions = 2

	tcIngressMinor = 0xfff2
	tcEgressMinor  = 0xfff3
	tcMajor        = 0xffff0000
	tcRoot         = 0xffffffff
	tcIngress      = 0xfffffff1

	tcaBPFActions = 1
	tcaBPFName    = 7
	tcaBPFID      = 11

	tcaFlowerCTState      = 91 // and what else there is of connections, to
	tcaFlowerCTLabelsMask = 98

	tcaCakeNAT = 11

	tcaActKind = 1
)

// classifier is where a filter's options have the input that it asks for and its actions, 0 for none.
type classifier struct{ input, actions uint16 }

var classifiers = map[string]classifier{"u32": {8, 7}, "flower": {2, 3}, "fw": {3, 4}, "matchall": {0, 2}}

// Actions to which it makes no difference how a packet came to be sent. Of the others connmark, ctinfo and ct want its connection.
var plainActions = map[string]bool{"gact": true, "mirred": true, "police": true, "pedit": true, "skbedit": true, "csum": true, "vlan": true, "bpf": true, "nat": true,
	"skbmod": true, "sample": true, "simple": true, "mpls": true, "tunnel_key": true}

// Queueing disciplines without filters of their own. fq_codel and the classful ones can have filters.
var unfiltered = map[string]bool{"noqueue": true, "noop": true, "pfifo_fast": true, "pfifo": true, "bfifo": true,
	"pfifo_head_drop": true, "mq": true, "fq": true, "codel": true, "tbf": true, "netem": true}

// tcOf is what tc holds for one device.
type tcOf struct {
	qdiscs  []model.Qdisc
	filters []model.TCFilter
}

// readTC reads qdiscs in one dump (it cannot be restricted to a device) and the filters of every place that can have some.
func (r *Reader) readTC(n *model.Network) {
	found := map[int]*tcOf{}
	err := r.ask("qdiscs", func() error {
		clear(found)
		return r.k.netlink(request{proto: unix.NETLINK_ROUTE, typ: unix.RTM_GETQDISC, dump: true, body: make([]byte, tcHeader)},
			func(_ uint16, b []byte) error {
				index, q, err := decodeQdisc(b)
				if err != nil {
					return err
				}
				if found[index] == nil {
					found[index] = &tcOf{}
				}
				found[index].qdiscs = append(found[index].qdiscs, q)
				return nil
			})
	})
	if err != nil {
		r.fault(TC, "qdiscs", err)
		found = map[int]*tcOf{}
	}
	indexes := make([]int, 0, len(found))
	for index := range found {
		indexes = append(indexes, index)
	}
	slices.Sort(indexes)
	for _, index := range indexes {
		d := found[index]
		for _, parent := range slices.Concat(filterParents(d.qdiscs), r.innerClasses(index, d.qdiscs)) {
			r.readFilters(index, parent, d)
		}
	}
	links := slices.Clone(n.Links)
	for i, l := range links {
		d := found[l.Index]
		if d == nil {
			d = &tcOf{}
		}
		if !slices.Equal(l.Qdiscs, d.qdiscs) || !slices.Equal(l.TCFilters, d.filters) {
			changed := *l
			changed.Qdiscs, changed.TCFilters, links[i] = d.qdiscs, d.filters, &changed
		}
	}
	n.Links = links
}

// byRoot gives a device's qdiscs by the kind of its root, where that tells all of them, as with each end of a veth: reading those of a thousand devices for each that comes
// would take long. At a root without a queue nothing hangs, and a device of which nothing was known has none at its way in or out that was not announced: what
// comes from another namespace has lost its own (dev_shutdown() in __dev_change_net_namespace()).
func byRoot(kind string, known []model.Qdisc) (qs []model.Qdisc, told bool) {
	switch kind {
	case "noqueue":
		qs = append(qs, model.Qdisc{Kind: kind, Parent: tcRoot})
	case "noop": // which no dump shows
	default:
		return nil, false
	}
	for _, q := range known {
		switch {
		case q.Parent == tcIngress:
			qs = append(qs, q)
		case q.Kind != "noqueue" || q.Parent != tcRoot:
			return nil, false
		}
	}
	return qs, true
}

func decodeQdisc(b []byte) (index int, q model.Qdisc, err error) {
	if len(b) < tcHeader {
		return 0, q, errors.New("qdisc message too short")
	}
	q.Handle, q.Parent = get32(b, 8), get32(b, 12)
	// Options and statistics: the graph goes by the kind, and filters are read by where they hang.
	_, err = attrs(b[tcHeader:], func(ad *netlink.AttributeDecoder) bool {
		switch ad.Type() {
		case tcaKind:
			q.Kind = ad.String()
		case tcaIngressBlock:
			q.BlockIn = true
		case tcaEgressBlock:
			q.BlockOut = true
		case tcaOptions:
			if q.Kind == "cake" {
				var un unknowns
				return nested(ad, "cake", &un, func(ad *netlink.AttributeDecoder) bool {
					q.Connection = q.Connection || ad.Type() == tcaCakeNAT && ad.Uint32() != 0
					return true
				})
			}
		}
		return true
	})
	return int(get32(b, 4)), q, err
}

// filterParents are the handles under which filters can hang.
func filterParents(qdiscs []model.Qdisc) (out []uint32) {
	for _, q := range qdiscs {
		switch {
		case q.Kind == "clsact":
			out = append(out, q.Handle&tcMajor|tcIngressMinor, q.Handle&tcMajor|tcEgressMinor)
		case q.Kind == "ingress", !unfiltered[q.Kind] && q.Handle != 0:
			out = append(out, q.Handle)
		case !unfiltered[q.Kind] && q.Parent == tcRoot:
			out = append(out, 0) // a root qdisc that the kernel made has no handle, but is found under parent 0
		}
	}
	return out
}

// trees are the queueing disciplines whose classes have classes, and ask the filters of each on the way down (htb_classify(), hfsc_classify()); those of the lowest nobody asks.
var trees = map[string]bool{"htb": true, "hfsc": true}

// innerClasses are the classes of a device that have classes below them.
func (r *Reader) innerClasses(index int, qdiscs []model.Qdisc) (out []uint32) {
	if !slices.ContainsFunc(qdiscs, func(q model.Qdisc) bool { return trees[q.Kind] }) {
		return nil
	}
	fixed := make([]byte, tcHeader)
	put32(fixed, 4, uint32(index))
	inner := map[uint32]bool{}
	err := r.ask("classes", func() error {
		clear(inner)
		return r.k.netlink(request{proto: unix.NETLINK_ROUTE, typ: unix.RTM_GETTCLASS, dump: true, body: fixed}, func(_ uint16, b []byte) error {
			if len(b) < tcHeader {
				return errors.New("class message too short")
			}
			if parent := get32(b, 12); parent != tcRoot && parent&^uint32(tcMajor) != 0 { // of the lowest number is the discipline itself
				inner[parent] = true
			}
			return nil
		})
	})
	if err != nil && !errors.Is(err, unix.ENODEV) {
		r.fault(TC, fmt.Sprintf("tc classes of link %d", index), err)
	}
	return slices.Sorted(maps.Keys(inner))
}

func (r *Reader) readFilters(index int, parent uint32, d *tcOf) {
	fixed := make([]byte, tcHeader)
	put32(fixed, 4, uint32(index))
	put32(fixed, 12, parent)
	from := len(d.filters)
	err := r.ask("filters", func() error {
		d.filters = d.filters[:from]
		return r.k.netlink(request{proto: unix.NETLINK_ROUTE, typ: unix.RTM_GETTFILTER, dump: true, body: fixed}, func(_ uint16, b []byte) error {
			f, err := r.decodeFilter(b)
			if err == nil && f.Kind != "" {
				f.Parent = parent // a filter of a shared block names the block
				d.filters = append(d.filters, f)
			}
			return err
		})
	})
	// The dump of a qdisc that takes no filters, or is gone by now, is an error without meaning.
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENODEV) {
		r.fault(TC, fmt.Sprintf("tc filters of link %d parent %x", index, parent), err)
	}
	// One classifier is one message without and several with its elements; it counts once.
	slices.SortStableFunc(d.filters, func(a, b model.TCFilter) int {
		return cmp.Or(cmp.Compare(a.Parent, b.Parent), cmp.Compare(a.Prio, b.Prio))
	})
	d.filters = merged(d.filters)
}

// merged makes one of a classifier's messages, with what any of its elements asks for.
func merged(filters []model.TCFilter) (out []model.TCFilter) {
	for _, f := range filters {
		if n := len(out) - 1; n >= 0 && out[n].Kind == f.Kind && out[n].Parent == f.Parent && out[n].Prio == f.Prio && out[n].Own == f.Own {
			out[n].Connection, out[n].Input, out[n].Program = out[n].Connection || f.Connection, out[n].Input || f.Input, out[n].Program || f.Program
			continue
		}
		out = append(out, f)
	}
	return out
}

// actions says whether all of a filter's actions are plainActions, and whether one of them is a program.
func actions(ad *netlink.AttributeDecoder) (plain, program bool) {
	plain = true
	ad.Nested(func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					if ad.Type() == tcaActKind {
						plain, program = plain && plainActions[ad.String()], program || ad.String() == "bpf"
					}
				}
				return nil
			})
		}
		return nil
	})
	return plain, program
}

// decodeFilter reads one filter. BPF classifiers of ours (clsact, before tcx) are marked.
func (r *Reader) decodeFilter(b []byte) (f model.TCFilter, err error) {
	if len(b) < tcHeader {
		return f, errors.New("filter message too short")
	}
	f.Prio = uint16(get32(b, 16) >> 16)
	element := get32(b, 8) != 0 // handle
	var id uint32
	var name string
	_, err = attrs(b[tcHeader:], func(ad *netlink.AttributeDecoder) bool {
		switch ad.Type() {
		case tcaKind:
			f.Kind = ad.String()
		case tcaOptions:
			if at, known := classifiers[f.Kind]; known {
				var un unknowns
				return nested(ad, f.Kind, &un, func(ad *netlink.AttributeDecoder) bool {
					f.Connection = f.Connection || f.Kind == "flower" && ad.Type() >= tcaFlowerCTState && ad.Type() <= tcaFlowerCTLabelsMask
					f.Input = f.Input || at.input != 0 && ad.Type() == at.input
					if ad.Type() == at.actions {
						plain, program := actions(ad)
						f.Connection, f.Program = f.Connection || !plain, f.Program || program
					}
					return true
				})
			}
			if f.Kind == "bpf" {
				var un unknowns
				return nested(ad, "bpf", &un, func(ad *netlink.AttributeDecoder) bool {
					switch ad.Type() {
					case tcaBPFActions: // of one that only classifies
						plain, program := actions(ad)
						f.Connection, f.Program = f.Connection || !plain, f.Program || program
					case tcaBPFName:
						name = ad.String()
					case tcaBPFID:
						id = ad.Uint32()
					}
					return true
				})
			}
		}
		return true
	})
	switch {
	case id != 0:
		f.Own = r.programOf(id, name).Own
	case f.Kind == "bpf" && !element:
		f.Kind = "" // the classifier without its elements, which come as messages of their own and say whose they are
	}
	return f, err
}
