// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"testing"

	"golang.org/x/sys/unix"
)

// broken is a kernel whose answers about rules are damaged: rules of nf_tables that do not even say where they belong, legacy tables whose head does not fit their entries.
type broken struct{ kernel }

func (k broken) netlink(q request, each func(typ uint16, data []byte) error) error {
	return k.kernel.netlink(q, func(typ uint16, data []byte) error {
		if q.proto == unix.NETLINK_NETFILTER && q.typ == nfnlNFT<<8|unix.NFT_MSG_GETRULE {
			data = data[:4]
		}
		return each(typ, data)
	})
}

func (k broken) legacy(family int, table string) ([]byte, error) {
	blob, err := k.kernel.legacy(family, table)
	if err == nil {
		put32(blob, infoEntries, get32(blob, infoEntries)+1)
	}
	return blob, err
}

// TestFaultsStay: what cannot be understood is a fault of every reading, not only of the one that made the rule set, behind which its traffic would be fast.
func TestFaultsStay(t *testing.T) {
	for _, file := range []string{"nft", "legacy"} {
		k, err := openReplay("testdata/" + file + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(Options{IsOwn: own}, broken{k})
		if r.genl, err = findGenl(k); err != nil {
			t.Fatal(err)
		}
		first, err := r.Read(All)
		if err != nil || len(first.Faults) == 0 {
			t.Fatalf("%s: %v, faults %v", file, err, first.Faults)
		}
		second, err := r.Read(Netfilter)
		if err != nil || second.Filter != first.Filter {
			t.Fatalf("%s: %v; the rule set was made anew, so that nothing is tested", file, err)
		}
		if len(second.Faults) != len(first.Faults) {
			t.Errorf("%s: faults of the first reading: %v; of the second: %v", file, first.Faults, second.Faults)
		}
	}
	for _, file := range []string{"native", "legacy"} {
		path := "testdata/rules/" + file + ".jsonl"
		k, err := openReplay(path)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := ReplayRules(path)
		if damaged := readRules(broken{k}); err != nil || len(whole.Faults) > 0 || len(damaged.Faults) == 0 {
			t.Errorf("%s: %v, faults %v, of a damaged reading %v", path, err, whole.Faults, damaged.Faults)
		}
	}
}
