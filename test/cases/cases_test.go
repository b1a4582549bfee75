package cases

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
)

var update = flag.Bool("update", false, "write the files that the cases compare with")

// node is the node that the cases show.
const node = "n1"

// Names of the files of a case that the test reads.
const (
	clusterFile = "cluster.yaml"
	policyFile  = "policy.yaml"
	// isolationFile says that namespaces are isolated.
	isolationFile = "isolation"
)

// noPolicy is the case that shows whole listings.
const noPolicy = "no-policy"

func TestCases(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no case: %v", err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := readCase(t, path)
			got := txtar.Format(&txtar.Archive{Comment: c.comment, Files: c.files(t, name == noPolicy)})
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("differs from %s (-file +now); go test ./test/cases -update writes it again\n%s", path, diff)
			}
		})
	}
}

// testCase is one case as its file gives it.
type testCase struct {
	comment []byte
	// input has the files that the test only reads.
	input   []txtar.File
	cluster objects
	// with is the cluster with the case's policies.
	with objects
	ipv6 bool
	// verdicts are those that the file has.
	verdicts string
}

func readCase(t *testing.T, path string) testCase {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := testCase{comment: a.Comment, ipv6: strings.Contains(filepath.Base(path), "ipv6")}
	cluster, err := os.ReadFile("testdata/" + clusterFile)
	if err != nil {
		t.Fatal(err)
	}
	var policies []byte
	var settings objects
	for _, f := range a.Files {
		switch f.Name {
		case clusterFile:
			cluster = f.Data
		case policyFile:
			policies = f.Data
		case isolationFile:
			settings.Antrea.Isolation = true
		case "verdicts":
			c.verdicts = string(f.Data)
			continue
		default:
			continue
		}
		c.input = append(c.input, f)
	}
	c.cluster = parse(t, cluster)
	c.with = c.cluster.plus(parse(t, policies)).plus(settings)
	return c
}

// files returns the expected files of the case. A whole listing also has
// the objects that every node holds.
func (c testCase) files(t *testing.T, whole bool) []txtar.File {
	t.Helper()
	here := c.with.model(t, node)
	states := func(o objects, backend string) *dump.State {
		s, err := wanted.Of(o.model(t, node), backend)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	files := slices.Clone(c.input)
	add := func(name, text string) {
		if text != "" {
			files = append(files, txtar.File{Name: name, Data: []byte(text)})
		}
	}
	add("problems", c.with.problems(t))
	for _, backend := range []string{config.NFTables, config.IPTablesNFT, config.OpenFlow} {
		with := states(c.with, backend)
		l := listing{state: with, names: here}
		if !whole {
			l.base = states(c.cluster, backend)
		}
		switch backend {
		case config.NFTables:
			add("nft", l.nft(t))
		case config.IPTablesNFT:
			add("iptables-save", l.iptables(t, model.IPv4))
			if c.ipv6 {
				add("ip6tables-save", l.iptables(t, model.IPv6))
			}
			add("ipset-save", l.ipsets(t))
		case config.OpenFlow:
			add("flows", l.flows(t))
		}
	}
	if testing.Short() && !*update {
		t.Log("-short: no packet is followed")
		add("verdicts", c.verdicts)
	} else {
		add("verdicts", c.with.verdicts(t))
	}
	return files
}
