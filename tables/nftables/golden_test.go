package nftables

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, diff)
	}
}

// TestListingReadsNaturally: nft lists the table in its usual form, and can read the listing back into the
// very same table.
func TestListingReadsNaturally(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	loadOrigins(table)
	loadReports(table)
	apply(t, table)
	listing := ns.list(t)
	golden(t, "listing.nft", listing)

	other := newNamespace(t)
	other.nft(t, listing)
	if diff := cmp.Diff(listing, other.list(t)); diff != "" {
		t.Errorf("nft reads its listing back as another table (-ours +nft's):\n%s", diff)
	}
	// The table that nft loads is the desired one, except for the boundary at zero that nft puts into
	// interval sets: these are renewed, with the rules that look them up. No other rule is touched.
	theirs := other.open(t)
	loadExample(theirs)
	loadOrigins(theirs)
	loadReports(theirs)
	if r := apply(t, theirs); r.RulesAdded != 2 || r.RulesDeleted != 2 {
		t.Errorf("rules that nft has loaded are written anew: %+v", r)
	}
	wantSilent(t, theirs)
	sorted := func(listing string) []string { return slices.Sorted(strings.Lines(listing)) }
	if diff := cmp.Diff(sorted(listing), sorted(other.list(t))); diff != "" {
		t.Errorf("another listing after the reload (-before +after):\n%s", diff)
	}
}
