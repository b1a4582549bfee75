package docs

import (
	"flag"
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

var update = flag.Bool("update", false, "write the generated pages anew")

// head is the comment at the begin of a file of a table's flows.
type head struct {
	// file has its path below ovsfwd.
	file string
	// tables are the numbers that its first words name.
	tables []uint8
	text   string
}

func heads(t *testing.T) []head {
	t.Helper()
	var all []head
	for _, dir := range []string{"pipeline", "policyflows"} {
		files, err := filepath.Glob(filepath.Join("..", "ovsfwd", dir, "table[0-9]*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no tables in %s: %v", dir, err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if len(parsed.Comments) == 0 || !strings.HasPrefix(parsed.Comments[0].Text(), "Table") {
				t.Fatalf("%s does not begin with its flows", file)
			}
			h := head{file: dir + "/" + filepath.Base(file), text: parsed.Comments[0].Text()}
			for _, number := range regexp.MustCompile(`\b\d+`).FindAllString(regexp.MustCompile(`(?s)^[^:.]*`).FindString(h.text), -1) {
				n, err := strconv.ParseUint(number, 10, 8)
				if err != nil {
					t.Fatal(err)
				}
				h.tables = append(h.tables, uint8(n))
			}
			all = append(all, h)
		}
	}
	return all
}

// link names a file, and leads to its part of the page.
func (h head) link() string {
	return fmt.Sprintf("[%s](#%s)", h.file, regexp.MustCompile(`[^a-z0-9_]`).ReplaceAllString(h.file, ""))
}

// TestOpenFlowTables: design/openflow-tables.md has the heads of the files of all tables. With -update it is written.
func TestOpenFlowTables(t *testing.T) {
	var page strings.Builder
	page.WriteString("# OpenFlow tables\n\nThe flows of each table, in the notation of `ovs-ofctl`. Words in capitals stand for values.\n" +
		"[openflow.md](openflow.md) says what the pipeline promises. `go test ./docs -update` writes this page from the heads of the files in `ovsfwd`.\n\n" +
		"| table | name | flows |\n|---|---|---|\n")
	all := heads(t)
	for _, table := range pipeline.Tables() {
		var links []string
		for _, h := range all {
			if slices.Contains(h.tables, table.Number) {
				links = append(links, h.link())
			}
		}
		if links == nil {
			t.Errorf("no file begins with the flows of table %d, %s", table.Number, table.Name)
		}
		fmt.Fprintf(&page, "| %d | %s | %s |\n", table.Number, table.Name, strings.Join(links, ", "))
	}
	for _, h := range all {
		var p comment.Parser
		fmt.Fprintf(&page, "\n## %s\n\n%s", h.file, (&comment.Printer{}).Markdown(p.Parse(h.text)))
	}
	const file = "design/openflow-tables.md"
	if *update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), page.String()); diff != "" {
		t.Errorf("%s is out of date (go test ./docs -update):\n%s", file, diff)
	}
}
