package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/felixlike/felixlike/test/lab/verify"
	"github.com/felixlike/felixlike/test/truthtable"
)

func TestExitCodeOfATable(t *testing.T) {
	for _, test := range []struct {
		name  string
		tally verify.Tally
		err   error
		want  int
	}{
		{"as expected", verify.Tally{Allowed: 5000, Late: 5}, nil, ExitOK},
		{"wrong", verify.Tally{Allowed: 5000, Wrong: 1}, nil, ExitDisagreement},
		{"late", verify.Tally{Allowed: 5000, Late: 6}, nil, ExitDisagreement},
		{"not tried", verify.Tally{NotTried: 1}, fmt.Errorf("probe: %w", verify.ErrNotTried), ExitFailure},
		{"wrong, late and not tried", verify.Tally{Allowed: 5000, Wrong: 1, Late: 6, NotTried: 1}, fmt.Errorf("probe: %w", verify.ErrNotTried), ExitFailure},
		{"state not reached", verify.Tally{Wrong: 1}, errors.New("no agent"), ExitFailure},
	} {
		if err := verdictOf(test.tally, test.err); ExitCode(err) != test.want {
			t.Errorf("%s: exit code %d of %v, want %d", test.name, ExitCode(err), err, test.want)
		}
	}
}

func TestRepeatedTable(t *testing.T) {
	steps := []truthtable.Step{{Case: "a"}, {Case: "b"}}
	got, err := repeated(steps, 3)
	if err != nil || len(got) != 6 || got[2].Case != "a" || got[5].Case != "b" {
		t.Errorf("%d steps, %v", len(got), err)
	}
	for _, times := range []int{-1, 0, maxRepeat + 1} {
		if _, err := repeated(steps, times); err == nil {
			t.Errorf("%d times is taken", times)
		}
	}
}

func TestProbeRate(t *testing.T) {
	for rate, ok := range map[int]bool{-1: false, 0: false, 1: true, maxRate: true, maxRate + 1: false} {
		if err := checkRate(rate); (err == nil) != ok {
			t.Errorf("--rate %d: %v", rate, err)
		}
	}
}
