// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/internal/kstate/nftables"
)

const (
	nftSource = "nf_tables" // among the sources of events

	manyChanges      = 64  // rules in a transaction from which on reading all anew is as good
	manySets         = 16  // sets in a transaction, likewise
	manyTransactions = 256 // that nobody has asked for
)

// nftLog is what events say of nf_tables, transaction by transaction. The kernel sends those of one transaction when it is committed, and behind
// them the number of the generation that it made. An event that is not of a rule, or of which it is not clear what it means, makes its
// transaction one that says nothing.
type nftLog struct {
	closed []nftTransaction
	open   nftTransaction
	full   bool // events are being lost
}

type nftTransaction struct {
	generation uint32
	changes    []nftables.Change
	sets       []nftName // whose elements are others
	unclear    bool
}

// nftEvent takes in one message.
func nftEvent(r *Reader, h header, b []byte) {
	r.mark(Netfilter)
	r.nftLog.take(h, b)
}

func (l *nftLog) take(h header, b []byte) {
	switch typ := h.typ; typ {
	case nfnlNFT<<8 | unix.NFT_MSG_NEWRULE, nfnlNFT<<8 | unix.NFT_MSG_DELRULE:
		if l.open.unclear || len(l.open.changes) == manyChanges {
			l.open = nftTransaction{unclear: true}
			return
		}
		ch, err := nftables.DecodeChange(b, typ == nfnlNFT<<8|unix.NFT_MSG_DELRULE, h.flags&unix.NLM_F_APPEND != 0)
		if err != nil {
			l.open.unclear = true
			return
		}
		l.open.changes = append(l.open.changes, ch)
	case nfnlNFT<<8 | unix.NFT_MSG_NEWSETELEM, nfnlNFT<<8 | unix.NFT_MSG_DELSETELEM:
		family, table, name, err := nftables.DecodeElementsOf(b)
		if set := (nftName{family, table, name}); !slices.Contains(l.open.sets, set) {
			l.open.sets = append(l.open.sets, set)
		}
		l.open.unclear = l.open.unclear || err != nil || len(l.open.sets) > manySets
	case nfnlNFT<<8 | unix.NFT_MSG_NEWGEN:
		generation, err := nftables.DecodeGeneration(b)
		if err != nil || len(l.closed) == manyTransactions {
			l.lost(l.full)
			return
		}
		l.open.generation = generation
		l.open.unclear = l.open.unclear || l.full
		l.closed = append(l.closed, l.open)
		l.open = nftTransaction{}
	default:
		l.open.unclear = true
	}
}

// lost forgets everything, since events were lost; full says that more may be, without notice. What comes next may be the rest of a
// transaction of which the beginning is missing.
func (l *nftLog) lost(full bool) {
	*l = nftLog{full: full, open: nftTransaction{unclear: true}}
}

// until takes the transactions from behind one generation to another out of the log; false if one of them is missing, or says nothing.
func (l *nftLog) until(from, to uint32) (changes []nftables.Change, sets []nftName, ok bool) {
	for len(l.closed) > 0 && int32(l.closed[0].generation-from) <= 0 { // the dump had them
		l.closed = l.closed[1:]
	}
	n := int(to - from)
	if n > len(l.closed) {
		return nil, nil, false
	}
	for i, t := range l.closed[:n] {
		if t.unclear || t.generation != from+uint32(i)+1 {
			return nil, nil, false
		}
		changes, sets = append(changes, t.changes...), append(sets, t.sets...)
	}
	l.closed = l.closed[n:]
	return changes, sets, true
}

// nftPatience is how long events are waited for of a generation that exists already: the kernel sends them right behind it.
const nftPatience = time.Millisecond

// followNFT brings the reading up to a generation by what events said. Where it cannot, the reading is not valid any more.
func (r *Reader) followNFT(generation uint32) bool {
	t := r.nft
	if r.live == nil || r.opts.Recorder != nil { // what is recorded has to be answers to questions
		return false
	}
	var changes []nftables.Change
	var sets []nftName
	ok := false
	for end := time.Now().Add(nftPatience); !ok; {
		if err := r.drainNFT(); err != nil || !t.valid { // events were lost
			return false
		}
		if changes, sets, ok = r.nftLog.until(t.generation, generation); ok {
			break
		}
		left := time.Until(end)
		if left <= 0 || r.nftLog.past(generation) {
			return false
		}
		if _, err := pollFD([]unix.PollFd{{Fd: int32(r.nftFD()), Events: unix.POLLIN}}, left); err != nil {
			return false
		}
	}
	t.valid = false // until all of them are in
	if !t.apply(changes) || !r.refill(t, sets) {
		return false
	}
	r.nftChanges.Add(uint64(len(changes)))
	t.conclude()
	t.generation, t.valid = generation, true
	return true
}

// refill reads the elements of sets anew, as far as rules ask them; false where they cannot be told. They may be of a later generation then.
func (r *Reader) refill(t *nftTables, sets []nftName) bool {
	for i := range t.dump.Sets {
		s := &t.dump.Sets[i]
		name := nftName{s.Family, s.Table, s.Name}
		if !t.asked[name] || !slices.Contains(sets, name) {
			continue
		}
		if t.dump.SetProblems[i] != "" {
			return false
		}
		s.Elements = nil
		if err := r.dumpElements(t, i); err != nil || t.dump.SetProblems[i] != "" {
			return false
		}
		t.refilled[i], t.ahead = true, true
		r.setDumps.Add(1)
	}
	return true
}

// past says whether all that there is to know of a generation is in the log.
func (l *nftLog) past(generation uint32) bool {
	return len(l.closed) > 0 && int32(l.closed[len(l.closed)-1].generation-generation) >= 0
}

func (r *Reader) nftFD() int {
	for i := range r.sources {
		if r.sources[i].name == nftSource {
			return r.sources[i].fd
		}
	}
	return -1
}

// drainNFT takes in the events that are there. They are of no more use as a reason to read: they are being read.
func (r *Reader) drainNFT() error {
	for i := range r.sources {
		if s := &r.sources[i]; s.name == nftSource {
			before := r.dirty
			err := r.drain(s, time.Now())
			if r.nft.valid {
				r.dirty = before
			}
			return err
		}
	}
	return nil
}

// apply changes rules; false if what they are now cannot be told.
func (t *nftTables) apply(changes []nftables.Change) bool {
	known := true
	for _, ch := range changes {
		if !ch.Gone { // of sets and objects only what rules asked for was read
			eachAsked(ch.Rule, func(set string) { known = known && t.asked[nftName{ch.Rule.Family, ch.Rule.Table, set}] }, func() { known = known && t.objects })
		}
	}
	if !known {
		return false
	}
	chains, ok := t.dump.Apply(changes)
	for n := range chains {
		t.changed[n] = true
		t.chains[n].survey()
	}
	return ok
}
