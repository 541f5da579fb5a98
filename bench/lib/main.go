// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/shuntnet/shunt/bench/suite"
)

func main() { theSuite().Main() }

func theSuite() suite.Suite {
	return suite.Suite{Name: "lib", Sections: []suite.Section{operations, structures, functions}, Write: writePage}
}

//go:embed testdata/operations.bpf.o
var operationsObject []byte

//go:embed testdata/functions.bpf.o
var functionsObject []byte

func budget(minutes int) time.Duration { return time.Duration(minutes) * time.Minute }

// load loads an object for the length of a section.
func load(b *suite.Bench, object []byte, change func(*ebpf.CollectionSpec) error) (*ebpf.Collection, error) {
	coll, err := loadOnce(object, change)
	if err == nil {
		b.Later(func() error { coll.Close(); return nil })
	}
	return coll, err
}

// loadOnce loads an object for the caller to close; change, if any, sets its variables before.
func loadOnce(object []byte, change func(*ebpf.CollectionSpec) error) (*ebpf.Collection, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("reading the compiled programs: %w", err)
	}
	if change != nil {
		if err := change(spec); err != nil {
			return nil, err
		}
	}
	for _, p := range spec.Programs { // the feeder has them, and only like may jump to like
		p.Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("loading the programs: %w", err)
	}
	return coll, nil
}
