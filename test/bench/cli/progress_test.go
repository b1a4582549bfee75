package cli

import (
	"strings"
	"testing"
)

func TestProgressIsALineATurn(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out)
	p.Turn(1, 2, "nftables")
	p.Case("first-load")
	p.Case("restart")
	p.Done()
	if got, want := out.String(), "[0s] round 1 of 2, nftables: first-load restart (0s)\n"; got != want {
		t.Errorf("progress %q, want %q", got, want)
	}
}
