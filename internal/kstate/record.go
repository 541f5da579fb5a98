// SPDX-License-Identifier: Apache-2.0

package kstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/shuntnet/shunt/internal/model"
	"golang.org/x/sys/unix"
)

// Recorder writes every question to the kernel and its answer as one line of JSON. It may be shared by Readers, but a replay
// makes sense only of one.
type Recorder struct {
	mu  sync.Mutex
	enc *json.Encoder
	err error
}

// NewRecorder records to w.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{enc: json.NewEncoder(w)} }

// Err is the first error of writing the record.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// entry is one line: Ask is the question in words, the rest the answer.
type entry struct {
	Ask   string          `json:"ask"`
	Msgs  []message       `json:"msgs,omitempty"`
	Text  string          `json:"text,omitempty"`
	Names []string        `json:"names,omitempty"`
	IDs   []uint32        `json:"ids,omitempty"`
	Bytes []byte          `json:"bytes,omitempty"`
	Links []netfilterLink `json:"links,omitempty"`
	Hooks []walkedHook    `json:"hooks,omitempty"`
	Errno int             `json:"errno,omitempty"`
	Err   string          `json:"err,omitempty"` // when there is no errno
}

type message struct {
	Type uint16 `json:"type"`
	Data []byte `json:"data"`
}

func (e *entry) fail(err error) {
	var errno unix.Errno
	switch {
	case err == nil:
	case errors.As(err, &errno):
		e.Errno = int(errno)
	case errors.Is(err, fs.ErrNotExist):
		e.Errno = int(unix.ENOENT)
	default:
		e.Err = err.Error()
	}
}

func (e *entry) failed() error {
	switch {
	case e.Errno != 0:
		return unix.Errno(e.Errno)
	case e.Err == errInterrupted.Error():
		return errInterrupted
	case e.Err != "":
		return errors.New(e.Err)
	}
	return nil
}

func (r *Recorder) write(e entry, err error) {
	e.fail(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = r.enc.Encode(e)
	}
}

// The questions in words: what Replay finds answers by.
func askNetlink(q request) string {
	return fmt.Sprintf("netlink %d %#x dump=%t %x", q.proto, q.typ, q.dump, q.body)
}
func askAttached(index int, at ebpf.AttachType) string {
	return fmt.Sprintf("attached %d %d", index, at)
}
func askWalk(family model.Family, hook uint32) string {
	return fmt.Sprintf("walk %s %d", family, hook)
}
func askProgram(id uint32) string               { return "program " + strconv.FormatUint(uint64(id), 10) }
func askLegacy(family int, table string) string { return fmt.Sprintf("legacy %d %s", family, table) }
func askOwner(inode uint64) string              { return "owner " + strconv.FormatUint(inode, 10) }

// recorded passes every question on and writes it down.
type recorded struct {
	kernel
	rec *Recorder
}

func (k *recorded) netlink(q request, each func(typ uint16, data []byte) error) error {
	e := entry{Ask: askNetlink(q)}
	err := k.kernel.netlink(q, func(typ uint16, data []byte) error {
		e.Msgs = append(e.Msgs, message{typ, append([]byte(nil), data...)})
		return each(typ, data)
	})
	k.rec.write(e, err)
	return err
}

func (k *recorded) file(path string) (string, error) {
	text, err := k.kernel.file(path)
	k.rec.write(entry{Ask: "file " + path, Text: text}, err)
	return text, err
}

// builtin is written down as the names of those that were found.
func (k *recorded) builtin(functions []string) (map[string]bool, error) {
	found, err := k.kernel.builtin(functions)
	e := entry{Ask: "builtin"}
	for name, is := range found {
		if is {
			e.Names = append(e.Names, name)
		}
	}
	k.rec.write(e, err)
	return found, err
}

func (k *recorded) list(path string) ([]string, error) {
	names, err := k.kernel.list(path)
	k.rec.write(entry{Ask: "list " + path, Names: names}, err)
	return names, err
}

func (k *recorded) driver(name string) (string, error) {
	text, err := k.kernel.driver(name)
	k.rec.write(entry{Ask: "driver " + name, Text: text}, err)
	return text, err
}

func (k *recorded) attached(index int, at ebpf.AttachType) ([]uint32, error) {
	ids, err := k.kernel.attached(index, at)
	k.rec.write(entry{Ask: askAttached(index, at), IDs: ids}, err)
	return ids, err
}

func (k *recorded) program(id uint32) (string, error) {
	text, err := k.kernel.program(id)
	k.rec.write(entry{Ask: askProgram(id), Text: text}, err)
	return text, err
}

func (k *recorded) walk(family model.Family, hook uint32) ([]walkedHook, error) {
	hooks, err := k.kernel.walk(family, hook)
	k.rec.write(entry{Ask: askWalk(family, hook), Hooks: hooks}, err)
	return hooks, err
}

func (k *recorded) netfilterLinks() ([]netfilterLink, error) {
	links, err := k.kernel.netfilterLinks()
	k.rec.write(entry{Ask: "netfilter links", Links: links}, err)
	return links, err
}

func (k *recorded) legacy(family int, table string) ([]byte, error) {
	b, err := k.kernel.legacy(family, table)
	k.rec.write(entry{Ask: askLegacy(family, table), Bytes: b}, err)
	return b, err
}

func (k *recorded) owner(inode uint64) (string, error) {
	text, err := k.kernel.owner(inode)
	k.rec.write(entry{Ask: askOwner(inode), Text: text}, err)
	return text, err
}

// replay answers from a record. Answers to the same question come in the order in which they were written, the last one
// for ever after.
type replay struct{ answers map[string][]entry }

func (k *replay) next(ask string) (entry, error) {
	a := k.answers[ask]
	if len(a) == 0 {
		return entry{}, fmt.Errorf("the record has no answer to %q", ask)
	}
	if len(a) > 1 {
		k.answers[ask] = a[1:]
	}
	return a[0], a[0].failed()
}

func (k *replay) netlink(q request, each func(typ uint16, data []byte) error) error {
	e, err := k.next(askNetlink(q))
	for _, m := range e.Msgs {
		if err := each(m.Type, m.Data); err != nil {
			return err
		}
	}
	return err
}

// file: what nobody asked for when the record was made counts as not there.
func (k *replay) file(path string) (string, error) {
	if len(k.answers["file "+path]) == 0 {
		return "", fmt.Errorf("the record has no file %s: %w", path, os.ErrNotExist)
	}
	e, err := k.next("file " + path)
	return e.Text, err
}

func (k *replay) builtin([]string) (map[string]bool, error) {
	e, err := k.next("builtin")
	found := map[string]bool{}
	for _, name := range e.Names {
		found[name] = true
	}
	return found, err
}

func (k *replay) list(path string) ([]string, error) {
	e, err := k.next("list " + path)
	return e.Names, err
}

func (k *replay) driver(name string) (string, error) {
	e, err := k.next("driver " + name)
	return e.Text, err
}

func (k *replay) attached(index int, at ebpf.AttachType) ([]uint32, error) {
	e, err := k.next(askAttached(index, at))
	return e.IDs, err
}

func (k *replay) program(id uint32) (string, error) {
	e, err := k.next(askProgram(id))
	return e.Text, err
}

func (k *replay) walk(family model.Family, hook uint32) ([]walkedHook, error) {
	e, err := k.next(askWalk(family, hook))
	return e.Hooks, err
}

func (k *replay) netfilterLinks() ([]netfilterLink, error) {
	e, err := k.next("netfilter links")
	return e.Links, err
}

func (k *replay) legacy(family int, table string) ([]byte, error) {
	e, err := k.next(askLegacy(family, table))
	return e.Bytes, err
}

func (k *replay) owner(inode uint64) (string, error) {
	e, err := k.next(askOwner(inode))
	return e.Text, err
}

// openReplay reads a recorded file.
func openReplay(path string) (*replay, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("replaying: %w", err)
	}
	defer f.Close()
	k := &replay{answers: map[string][]entry{}}
	dec := json.NewDecoder(f)
	for {
		var e entry
		if err := dec.Decode(&e); err == io.EOF {
			return k, nil
		} else if err != nil {
			return nil, fmt.Errorf("replaying %s: %w", path, err)
		}
		k.answers[e.Ask] = append(k.answers[e.Ask], e)
	}
}

// Replay gives the Network of the first Read in a recorded file. It needs no privilege.
func Replay(path string, opts Options) (*model.Network, error) {
	k, err := openReplay(path)
	if err != nil {
		return nil, err
	}
	r := newReader(opts, k)
	if r.genl, err = findGenl(k); err != nil {
		return nil, fmt.Errorf("replaying %s: %w", path, err)
	}
	return r.Read(All)
}
