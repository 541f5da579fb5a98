// SPDX-License-Identifier: Apache-2.0

package api

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestAnswersAreDocumented: docs/json.md names every field of every answer, in the section of its command.
func TestAnswersAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, s := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(s, "\n")
		sections[title] = body
	}
	code, word := regexp.MustCompile("`[^`\n]+`"), regexp.MustCompile(`\w+`)
	for title, answers := range map[string][]any{
		"status":                   {Status{}},
		"show rules":               {Rules{}},
		"top --flows":              {Flows{}},
		"explain":                  {Explanation{}},
		"show: the other subjects": {ReasonRow{}, ProgramRow{}, NeighbourRow{}},
		"monitor and show events":  {Event{}},
	} {
		body, ok := sections[title]
		if !ok {
			t.Errorf("docs/json.md has no section %q", title)
			continue
		}
		named := map[string]bool{}
		for _, span := range code.FindAllString(body, -1) {
			for _, w := range word.FindAllString(span, -1) {
				named[w] = true
			}
		}
		for _, a := range answers {
			for name, of := range fields(reflect.TypeOf(a), map[reflect.Type]bool{}) {
				if !named[name] {
					t.Errorf("docs/json.md does not name %q (of %s) in section %q", name, of, title)
				}
			}
		}
	}
}

// fields are the names in JSON of what a type has, with those of what it consists of, and which type each belongs to.
func fields(typ reflect.Type, seen map[reflect.Type]bool) map[string]string {
	out := map[string]string{}
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return fields(typ.Elem(), seen)
	case reflect.Struct:
		if seen[typ] || typ == reflect.TypeFor[time.Time]() || typ.PkgPath() == "net/netip" {
			return out
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && name != "-" {
				out[name] = typ.Name()
			}
			for n, of := range fields(f.Type, seen) {
				out[n] = of
			}
		}
	}
	return out
}
