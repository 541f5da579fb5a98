// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// node is a value of a JSON text that knows where it stands.
type node struct {
	at   int // byte offset
	kind byte
	text string // of a string, number, true, false or null
	keys []string
	list []*node // elements, or the values of the keys
}

// The kinds of nodes.
const (
	object  = '{'
	array   = '['
	text    = '"'
	numeral = '0'
	boolean = 't'
	null    = 'n'
)

// source is the file, for errors.
type source struct {
	name  string
	bytes []byte
}

func (s *source) fail(at int, token, format string, args ...any) error {
	at = min(at, len(s.bytes))
	before := s.bytes[:at]
	return &Error{s.name, bytes.Count(before, []byte("\n")) + 1, at - bytes.LastIndexByte(before, '\n'), token, fmt.Sprintf(format, args...)}
}

// wrong is the error that a node is not what it should be.
func (s *source) wrong(n *node, format string, args ...any) error {
	return s.fail(n.at, n.token(), format, args...)
}

func (n *node) token() string {
	switch n.kind {
	case object, array:
		return string(n.kind)
	}
	return n.text
}

const deepest = 100

// readJSON reads the text as one value.
func readJSON(s *source) (*node, error) {
	d := json.NewDecoder(bytes.NewReader(s.bytes))
	d.UseNumber()
	r := &jsonReader{source: s, d: d}
	n, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if rest := bytes.TrimLeft(s.bytes[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, s.fail(len(s.bytes)-len(rest), string(rest[:1]), "nothing may follow the end of the JSON text")
	}
	return n, nil
}

type jsonReader struct {
	*source
	d *json.Decoder
}

// next is the next token and where it begins.
func (r *jsonReader) next() (json.Token, int, error) {
	at := int(r.d.InputOffset())
	for at < len(r.bytes) && strings.IndexByte(" \t\r\n,:", r.bytes[at]) >= 0 {
		at++
	}
	t, err := r.d.Token()
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		// The offset is that of the character, or the one behind it.
		bad, token := min(max(int(syntax.Offset), 0), len(r.bytes)), ""
		quoted := func(i int) bool {
			return i >= 0 && i < len(r.bytes) && strings.HasPrefix(syntax.Error(), fmt.Sprintf("invalid character %q", rune(r.bytes[i])))
		}
		if !quoted(bad) && quoted(bad-1) {
			bad--
		}
		if bad < len(r.bytes) {
			token = string(r.bytes[bad : bad+1])
		}
		return nil, 0, r.fail(bad, token, "%s", strings.TrimPrefix(syntax.Error(), "json: "))
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, 0, r.fail(len(r.bytes), "", "the JSON text ends too early")
	case err != nil:
		return nil, 0, r.fail(at, "", "%v", err)
	}
	return t, at, nil
}

func (r *jsonReader) value(depth int) (*node, error) {
	t, at, err := r.next()
	if err != nil {
		return nil, err
	}
	return r.from(t, at, depth)
}

func (r *jsonReader) from(t json.Token, at, depth int) (*node, error) {
	if depth > deepest {
		return nil, r.fail(at, "", "nested deeper than %d", deepest)
	}
	n := &node{at: at}
	switch t := t.(type) {
	case string:
		n.kind, n.text = text, t
	case json.Number:
		n.kind, n.text = numeral, t.String()
	case bool:
		n.kind, n.text = boolean, strconv.FormatBool(t)
	case nil:
		n.kind, n.text = null, "null"
	case json.Delim:
		n.kind = byte(t)
		for r.d.More() {
			if n.kind == object {
				key, at, err := r.next()
				if err != nil {
					return nil, err
				}
				name, _ := key.(string)
				if n.get(name) != nil {
					return nil, r.fail(at, name, "the key is there already")
				}
				n.keys = append(n.keys, name)
			}
			v, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.list = append(n.list, v)
		}
		if _, _, err := r.next(); err != nil { // the closing bracket
			return nil, err
		}
	}
	return n, nil
}

// get is the value of a key, nil when there is none.
func (n *node) get(key string) *node {
	if n == nil || n.kind != object {
		return nil
	}
	for i, k := range n.keys {
		if k == key {
			return n.list[i]
		}
	}
	return nil
}

// only is the one key of an object, as nft's statements and expressions have it, and its value.
func (n *node) only() (key string, value *node, ok bool) {
	if n.kind != object || len(n.keys) != 1 {
		return "", nil, false
	}
	return n.keys[0], n.list[0], true
}

// unknown is a key that is not among those listed; "" when there is none.
func (n *node) unknown(keys string) string {
	for _, k := range n.keys {
		known := false
		for _, w := range strings.Fields(keys) {
			known = known || w == k
		}
		if !known {
			return k
		}
	}
	return ""
}

// is says whether the node is the text.
func (n *node) is(s string) bool { return n != nil && n.kind == text && n.text == s }

// need is the value of a key that has to be there, of a kind.
func (s *source) need(n *node, key string, kind byte) (*node, error) {
	v := n.get(key)
	switch {
	case v == nil:
		return nil, s.wrong(n, "%q is missing", key)
	case v.kind != kind:
		return nil, s.wrong(v, "%q is %s", key, map[byte]string{object: "an object", array: "a list", text: "a text", numeral: "a number"}[kind])
	}
	return v, nil
}

// needText is a text that has to be there.
func (s *source) needText(n *node, key string) (string, error) {
	v, err := s.need(n, key, text)
	if err != nil {
		return "", err
	}
	return v.text, nil
}

// number reads an integer from min to max.
func (s *source) number(n *node, min, max int64) (int64, error) {
	v, err := strconv.ParseInt(n.text, 10, 64)
	if n.kind != numeral || err != nil || v < min || v > max {
		return 0, s.wrong(n, "a number from %d to %d is expected", min, max)
	}
	return v, nil
}

// optional reads an integer that may be missing.
func (s *source) optional(n *node, key string, otherwise, min, max int64) (int64, error) {
	v := n.get(key)
	if v == nil {
		return otherwise, nil
	}
	return s.number(v, min, max)
}
