// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/shuntnet/shunt/internal/bpfobj"
	"github.com/shuntnet/shunt/internal/lab"
	"github.com/shuntnet/shunt/internal/synth"
)

// A change of an existing legacy table shows in the words of the guard, also where the module with its layout comes after shunt.
func TestLegacyTablesHaveWords(t *testing.T) {
	ns := lab.BuildLineT(t, lab.LineOptions{}).Node(lab.Dut)
	err := ns.Do(func() error {
		kernel, err := kernelTypes()
		if err != nil {
			return err
		}
		objects, err := loadObjects(slog.New(slog.DiscardHandler), kernel[:1], "") // without modules
		if err != nil {
			return err
		}
		defer objects.close()
		d := &Datapath{objects: objects}
		word := func(w bpfobj.Word) (bpfobj.WordValue, error) {
			s, err := d.Snapshot(false)
			return s.net(w), err
		}
		for _, c := range []struct {
			word   bpfobj.Word
			table  string
			change string
		}{
			{bpfobj.WordLegacy4Raw, "iptables-legacy -t raw", "-A PREROUTING -j DROP"},
			{bpfobj.WordLegacy4Mangle, "iptables-legacy -t mangle", "-A POSTROUTING -j DROP"},
			{bpfobj.WordLegacy4Filter, "iptables-legacy -t filter", "-P FORWARD DROP"},
			{bpfobj.WordLegacy4Sec, "iptables-legacy -t security", "-A FORWARD -j DROP"},
			{bpfobj.WordLegacy6Raw, "ip6tables-legacy -t raw", "-A PREROUTING -j DROP"},
			{bpfobj.WordLegacy6Mangle, "ip6tables-legacy -t mangle", "-A FORWARD -j DROP"},
			{bpfobj.WordLegacy6Filter, "ip6tables-legacy -t filter", "-A FORWARD -j DROP"},
			{bpfobj.WordLegacy6Sec, "ip6tables-legacy -t security", "-A FORWARD -j DROP"},
		} {
			if v, err := word(c.word); err != nil || v.Addr != 0 {
				t.Errorf("%s: there is no table, and a word %+v (%v)", c.table, v, err)
			}
			if err := ns.Shell(c.table + " -L -n"); err != nil {
				t.Logf("%s is not on this machine: %v", c.table, err)
				continue
			}
			before, err := word(c.word)
			if err != nil {
				return err
			}
			if before.Addr == 0 || before.Value == 0 || before.Width != 8 {
				t.Errorf("%s: the word of an empty table is %+v", c.table, before)
			}
			if again, err := word(c.word); err != nil || again != before {
				t.Errorf("%s: without a change, the word went from %+v to %+v (%v)", c.table, before, again, err)
			}
			if err := ns.Shell(c.table + " " + c.change); err != nil {
				return err
			}
			if after, err := word(c.word); err != nil || after.Addr != before.Addr || after.Value == before.Value {
				t.Errorf("%s %s: the word went from %+v to %+v (%v)", c.table, c.change, before, after, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A device without a program has words too: those of a bridge are watched by its ports' programs. Their change is read with the rest, and what is expected follows it.
func TestWordsOfDevicesWithoutPrograms(t *testing.T) {
	n := lab.BuildLineT(t, lab.LineOptions{})
	ns, index := n.Node(lab.Dut), n.Port(lab.Dut, "out").Index
	pins := t.TempDir() + "/bpf"
	err := ns.Do(func() error {
		d, err := Open(Options{PinDir: pins, Watchdog: time.Minute, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer d.Detach()
		if d.features.Peek == bpfobj.PeekNone {
			t.Skip("this kernel's memory cannot be read: bpf_rdonly_cast is of Linux 6.17, bpf_probe_read_kernel of 5.5")
		}
		word := synth.Word{Index: index, Word: bpfobj.WordDevRPFilter}
		slot := d.occupy(word)
		for _, filter := range []string{"0", "1", "2"} {
			if err := ns.Sysctl("net.ipv4.conf.out.rp_filter=" + filter); err != nil {
				return err
			}
			s, err := d.Snapshot(true)
			if err != nil {
				return err
			}
			v, known := s.word(word)
			if d.commit(&s); !known || d.wanted[slot] != v.Value || strconv.FormatUint(v.Value, 10) != filter {
				t.Errorf("rp_filter=%s: read %+v (%t), expected by programs is %d", filter, v, known, d.wanted[slot])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
