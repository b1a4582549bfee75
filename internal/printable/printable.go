// Package printable makes texts of others, such as names in files and answers of agents, safe to show on a terminal:
// printable, and on one line. It is tested by tables.
package printable

import (
	"reflect"
	"strings"
	"unicode"
)

// String replaces what is not printable, line ends too, by question marks.
func String(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Lines is String for a text of several lines: line ends and tabs stay.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, s)
}

// All replaces each string inside the value that v points to by its String. It does not enter unexported fields and
// keys of maps.
func All(v any) { all(reflect.ValueOf(v)) }

func all(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			all(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				all(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			all(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			all(value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(String(v.String()))
		}
	}
}
