package cluster

import (
	"errors"
	"testing"
)

// ending notes how a test ends.
type ending struct{ skipped, failed bool }

func (e *ending) Skip(...any)  { e.skipped = true }
func (e *ending) Fatal(...any) { e.failed = true }

// TestAbsent: what a cluster needs and is not there fails a suite that was asked for, and skips the tests otherwise.
func TestAbsent(t *testing.T) {
	for asked, want := range map[string]ending{"": {skipped: true}, quick: {failed: true, skipped: true}, full: {failed: true, skipped: true}} {
		t.Setenv(suiteVariable, asked)
		var got ending
		absent(&got, errors.New("a cluster needs root")) // it goes on after Fatal, as no test does
		if got != want {
			t.Errorf("%q: %+v, want %+v", asked, got, want)
		}
	}
}
