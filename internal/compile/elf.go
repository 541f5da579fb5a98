// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// elfFile is an object whose data sections can be given other contents. Nothing else of it changes: a section that grows moves to the end of
// the file, and its header says so. Loaders take a map's size from the section's.
type elfFile struct {
	bytes    []byte
	headers  int64 // offset of the section headers
	sections map[string]int
	list     []*elf.Section
}

func openELF(b []byte) (*elfFile, error) {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	var head elf.Header64
	if _, err := binary.Decode(b, binary.LittleEndian, &head); err != nil || f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB {
		return nil, fmt.Errorf("not a 64-bit little-endian object")
	}
	out := &elfFile{bytes: bytes.Clone(b), headers: int64(head.Shoff), sections: map[string]int{}, list: f.Sections}
	for i, s := range f.Sections {
		out.sections[s.Name] = i
	}
	return out, nil
}

func (f *elfFile) section(name string) (int, *elf.Section, error) {
	i, ok := f.sections[name]
	if !ok {
		return 0, nil, fmt.Errorf("there is no section %s", name)
	}
	return i, f.list[i], nil
}

// patch writes into a section.
func (f *elfFile) patch(name string, at int, data []byte) error {
	_, s, err := f.section(name)
	if err != nil {
		return err
	}
	if at < 0 || at+len(data) > int(s.Size) {
		return fmt.Errorf("%d bytes at %d are not in section %s", len(data), at, name)
	}
	copy(f.bytes[int(s.Offset)+at:], data)
	return nil
}

// replace gives a section other contents, of another size.
func (f *elfFile) replace(name string, data []byte) error {
	i, _, err := f.section(name)
	if err != nil {
		return err
	}
	const align, headerSize, offsetAt, sizeAt, alignAt = 64, 64, 24, 32, 48
	for len(f.bytes)%align != 0 {
		f.bytes = append(f.bytes, 0)
	}
	header := f.bytes[f.headers+int64(i)*headerSize:]
	binary.LittleEndian.PutUint64(header[offsetAt:], uint64(len(f.bytes)))
	binary.LittleEndian.PutUint64(header[sizeAt:], uint64(len(data)))
	binary.LittleEndian.PutUint64(header[alignAt:], 8)
	f.bytes = append(f.bytes, data...)
	return nil
}
