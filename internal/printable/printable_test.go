package printable

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const hostile = "a\x1b[31mEVIL\x1b[0m\nIN ORDER\u009b\u202e\tb"

func TestString(t *testing.T) {
	if got, want := String(hostile), "a?[31mEVIL?[0m?IN ORDER???b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := Lines(hostile), "a?[31mEVIL?[0m\nIN ORDER??\tb"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := String("shop/wéb → ok"); got != "shop/wéb → ok" {
		t.Errorf("%q", got)
	}
}

func TestAll(t *testing.T) {
	type inner struct{ S string }
	type outer struct {
		P *inner
		L []inner
		M map[string]inner
		A any
		N *inner
		I int
	}
	bad := inner{"x\ny"}
	v := outer{P: &inner{"x\ny"}, L: []inner{bad}, M: map[string]inner{"k": bad}, I: 1}
	All(&v)
	good := inner{"x?y"}
	if diff := cmp.Diff(outer{P: &good, L: []inner{good}, M: map[string]inner{"k": good}, I: 1}, v); diff != "" {
		t.Error(diff)
	}
}
