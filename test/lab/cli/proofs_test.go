package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/prove"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/lab/verify"
)

// TestProofsOfATable: only states that are proved without a rest count as equal, the rest is named, and a difference fails.
func TestProofsOfATable(t *testing.T) {
	p := newProofs(config.IPTablesNFT, 2)
	var pairs []string
	for _, one := range p.pairs {
		pairs = append(pairs, one.a+" "+one.b)
	}
	if got := strings.Join(pairs, ", "); got != "live wanted, wanted backend:nftables, wanted backend:openflow" {
		t.Error(got)
	}
	live := p.pairs[0]
	live.add("step 1, n1", &prove.Result{}, nil)
	live.add("step 1, n2", &prove.Result{NotProved: []string{"learned flows"}}, nil)
	live.add("step 2, n1", nil, &prove.NotProved{Place: "chain x", Reason: "unknown rule"})
	live.add("step 2, n2", nil, fmt.Errorf("wrapped: %w", context.DeadlineExceeded))
	live.add("step 2, n2", nil, context.DeadlineExceeded)
	var out bytes.Buffer
	if err := p.print(&out); err != nil || !strings.HasPrefix(out.String(), "live and wanted: proved equal for all packets in 1 of 5 comparisons\n  not proved: learned flows\n  not proved: chain x: unknown rule\n  not proved: the proof takes longer than its timeout\nwanted and backend:nftables: ") {
		t.Errorf("%v\n%s", err, out.String())
	}
	live.add("step 3, n1", &prove.Result{Differences: []prove.Difference{{A: "dropped", B: "accepted"}}}, nil)
	out.Reset()
	if err := p.print(&out); ExitCode(err) != ExitDisagreement || !strings.Contains(out.String(), "1 of 6 comparisons") || !strings.Contains(out.String(), "  DIFFERENT: step 3, n1: ") || !strings.Contains(out.String(), "live: dropped, wanted: accepted") {
		t.Errorf("%v\n%s", err, out.String())
	}
	live.add("step 3, n2", nil, errors.New("no agent listens"))
	if err := p.print(io.Discard); ExitCode(err) != ExitFailure || !strings.Contains(err.Error(), "1 proof failed, the first: prove live and wanted: step 3, n2: no agent listens") {
		t.Error(err)
	}
	for number, reached := range map[int]bool{1: true, 2: true, 3: false} {
		if p.after(number, verify.Outcome{Reached: true}) != reached || p.after(number, verify.Outcome{}) {
			t.Errorf("step %d", number)
		}
	}
}
