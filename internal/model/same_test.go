// SPDX-License-Identifier: Apache-2.0

package model

import (
	"reflect"
	"testing"
)

// A difference in any field, at any depth, makes links differ, also in a field that is yet to come.
func TestEveryFieldTellsLinksApart(t *testing.T) {
	fresh := func() *Link {
		l := &Link{}
		fill(reflect.ValueOf(l).Elem())
		return l
	}
	if a, b := fresh(), fresh(); !a.Equal(b) {
		t.Fatal("a link is not equal to its twin")
	}
	for i := range leaves(reflect.ValueOf(fresh()).Elem()) {
		a := fresh()
		at := leaves(reflect.ValueOf(a).Elem())[i]
		bump(at.value)
		if b := fresh(); a.Equal(b) || b.Equal(a) {
			t.Errorf("links that differ in %s are equal", at.name)
		}
	}
	for i := range reflect.TypeFor[Link]().NumField() {
		f := reflect.TypeFor[Link]().Field(i)
		if k := f.Type.Kind(); k == reflect.Pointer || k == reflect.Slice {
			a := fresh()
			reflect.ValueOf(a).Elem().Field(i).SetZero()
			if b := fresh(); a.Equal(b) || b.Equal(a) {
				t.Errorf("a link without %s is equal to one with it", f.Name)
			}
		}
	}
}

func TestCarriedLinksAreTheSame(t *testing.T) {
	before := []*Link{{Index: 1, Name: "lo"}, {Index: 3, Name: "a"}, {Index: 4, Name: "b"}}
	again := []*Link{{Index: 1, Name: "lo"}, {Index: 3, Name: "a"}, {Index: 4, Name: "b"}}
	if got := Carry(again, before); &got[0] != &before[0] {
		t.Error("nothing changed, and the links are others")
	}
	got := Carry([]*Link{{Index: 1, Name: "lo"}, {Index: 2, Name: "new"}, {Index: 3, Name: "a"}, {Index: 4, Name: "c"}}, before)
	if got[0] != before[0] || got[2] != before[1] {
		t.Error("a link that did not change is another")
	}
	if got[1].Name != "new" || got[3].Name != "c" {
		t.Errorf("a change was lost: %v %v", got[1], got[3])
	}
	if got := Carry(again[:2], before); len(got) != 2 || got[1] != before[1] {
		t.Error("without the last link the others are others, or it is still there")
	}
}

// fill makes everything in a value something, with one element in each list.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	}
}

type leaf struct {
	name  string
	value reflect.Value
}

// leaves are the plain values in a value that was filled.
func leaves(v reflect.Value) (out []leaf) {
	under := func(name string, v reflect.Value) {
		for _, l := range leaves(v) {
			out = append(out, leaf{name + "." + l.name, l.value})
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		return leaves(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			under("element", v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			under(v.Type().Field(i).Name, v.Field(i))
		}
	default:
		return []leaf{{v.Kind().String(), v}}
	}
	return out
}

func bump(v reflect.Value) {
	switch {
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	default:
		v.SetString(v.String() + "x")
	}
}
