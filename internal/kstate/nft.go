// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/kstate/nftables"
	"github.com/shuntnet/shunt/internal/model"
)

// nf_tables is read raw and not through a library: those at hand drop expressions that they do not know.

const nfnlNFT = 10 // subsystem

// nftTables is a reading of nf_tables, brought up to date by events of rules.
type nftTables struct {
	generation uint32
	valid      bool // that generation's, and what events say can be added to it
	dump       *nftables.Dump
	bad        []error // objects of which not even the name could be read
	asked      map[nftName]bool
	objects    bool // were read

	chains  []*nftChain // by their index in the dump
	hooks   []model.NFHook
	devices bool                  // something is hooked on devices
	tracked map[model.Family]bool // families in which some rule or chain turns connection tracking on
	sets    bool                  // a rule looks into ipsets

	changed  map[int]bool // chains whose rules events changed, that no rule set has yet
	refilled map[int]bool // sets whose elements were read again, likewise
	ahead    bool         // these may be of a later generation than the rest
}

// readNFT reads nf_tables, or gives the last reading: as it was if no transaction was committed since, or with what events say of those that were.
func (r *Reader) readNFT() (*nftTables, error) {
	if !r.loaded("nf_tables") {
		return r.noNFT, nil
	}
	r.subscribeNFT()
	for range 8 {
		before, err := r.nftGeneration()
		if r.nft.valid && !r.ownedStay(r.nft) {
			r.nft.valid = false
		}
		if err == nil && r.nft.valid && (r.nft.generation == before || r.followNFT(before)) {
			if r.nft.ahead {
				if after, err := r.nftGeneration(); err != nil || after != before {
					continue // what came between is followed, and says which sets to read once more
				}
				r.nft.ahead = false
			}
			return r.nft, nil
		}
		if err != nil {
			return nil, err
		}
		t := &nftTables{dump: &nftables.Dump{}, changed: map[int]bool{}, refilled: map[int]bool{}}
		err = r.dumpNFT(t)
		if err != nil && !errors.Is(err, errInterrupted) {
			return nil, err
		}
		// Tables, chains and rules are dumped one after the other: they belong together if no transaction came between.
		if after, err2 := r.nftGeneration(); err == nil && err2 == nil && after == before && r.ownedStay(t) {
			t.generation, t.valid = before, true
			t.describe()
			r.nft = t
			r.nftDumps.Add(1)
			return t, nil
		}
		r.interrupted.Add(1)
	}
	r.nft = &nftTables{}
	return nil, errInterrupted
}

func (r *Reader) nftGeneration() (gen uint32, err error) {
	err = r.k.netlink(asked(nfnlNFT, unix.NFT_MSG_GETGEN, 0, false, nil), func(_ uint16, b []byte) (err error) {
		gen, err = nftables.DecodeGeneration(b)
		return err
	})
	return gen, err
}

// ownedStay says whether the tables of a reading are still there that go with the program that made them: the kernel takes them away without a new generation and
// without an event (nft_rcv_nl_event()).
func (r *Reader) ownedStay(t *nftTables) bool {
	if !slices.ContainsFunc(t.dump.Tables, nftables.Table.Owned) {
		return true
	}
	now := &nftTables{dump: &nftables.Dump{}}
	if err := r.dumpPart(now, "tables", unix.NFT_MSG_GETTABLE, 0, nil, now.dump.AddTable); err != nil {
		return false
	}
	return !slices.ContainsFunc(t.dump.Tables, func(was nftables.Table) bool {
		return was.Owned() && !slices.ContainsFunc(now.dump.Tables, func(is nftables.Table) bool {
			return is.Family == was.Family && is.Name == was.Name && is.Handle == was.Handle
		})
	})
}

// dumpNFT asks for everything once; but for sets and objects only if a rule asks them, or everything is wanted.
func (r *Reader) dumpNFT(t *nftTables) error {
	d := t.dump
	dump := func(what string, msg uint16, family byte, attributes []byte, take func(b []byte) error) error {
		return r.dumpPart(t, what, msg, family, attributes, take)
	}
	optional := func(err error) error { // not every kernel has it
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
			return nil
		}
		return err
	}
	for _, q := range []struct {
		what string
		msg  uint16
		take func(b []byte) error
	}{
		{"tables", unix.NFT_MSG_GETTABLE, d.AddTable},
		{"chains", unix.NFT_MSG_GETCHAIN, d.AddChain},
		{"rules", unix.NFT_MSG_GETRULE, d.AddRule},
	} {
		if err := dump(q.what, q.msg, 0, nil, q.take); err != nil {
			return err
		}
	}
	sets, objects := asks(d)
	t.asked, t.objects = sets, objects
	if r.whole || len(sets) > 0 {
		if err := dump("sets", unix.NFT_MSG_GETSET, 0, nil, d.AddSet); err != nil {
			return err
		}
	}
	if r.whole || objects {
		if err := optional(dump("objects", unix.NFT_MSG_GETOBJ, 0, nil, d.AddObject)); err != nil {
			return err
		}
	}
	if err := optional(dump("flow tables", unix.NFT_MSG_GETFLOWTABLE, 0, nil, d.AddFlowtable)); err != nil {
		return err
	}
	for i := range d.Sets {
		s := &d.Sets[i]
		if s.Unread = !r.whole && !sets[nftName{s.Family, s.Table, s.Name}]; s.Unread {
			continue
		}
		if err := r.dumpElements(t, i); err != nil {
			return err
		}
	}
	return nil
}

// dumpPart asks for all of one kind.
func (r *Reader) dumpPart(t *nftTables, what string, msg uint16, family byte, attributes []byte, take func(b []byte) error) error {
	err := r.k.netlink(asked(nfnlNFT, msg, family, true, attributes), func(_ uint16, b []byte) error {
		if err := take(b); err != nil {
			t.bad = append(t.bad, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading %s: %w", what, err)
	}
	return nil
}

// dumpElements asks for those of a set.
func (r *Reader) dumpElements(t *nftTables, set int) error {
	s := &t.dump.Sets[set]
	attributes := body(nil, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table)
		ae.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	})
	err := r.dumpPart(t, "elements of set "+s.Name, unix.NFT_MSG_GETSETELEM, s.Family, attributes, func(b []byte) error { return t.dump.AddElements(set, b) })
	if errors.Is(err, unix.ENOENT) {
		return errInterrupted // gone since the dump of the sets
	}
	return err
}

// asks are the sets that rules look into, and whether any rule uses an object.
func asks(d *nftables.Dump) (sets map[nftName]bool, objects bool) {
	sets = map[nftName]bool{}
	for i := range d.Chains {
		for _, r := range d.Chains[i].Rules {
			eachAsked(r, func(set string) { sets[nftName{r.Family, r.Table, set}] = true }, func() { objects = true })
		}
	}
	return sets, objects
}

// eachAsked calls set for every set that a rule looks into, and object if it uses one.
func eachAsked(r *nftables.Rule, set func(name string), object func()) {
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *nftables.Lookup:
			set(e.Set)
		case *nftables.Dynset:
			set(e.Set)
		case *nftables.ObjRef:
			object()
		}
	}
}
