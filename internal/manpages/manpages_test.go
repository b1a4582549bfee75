package manpages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestPages: there is a page for each command that help lists, with its examples, and two runs
// write the same bytes.
func TestPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	write := func() map[string]string {
		root := &cobra.Command{Use: "felixctl", Short: "Operate", Version: "v1.2.3"}
		root.AddCommand(&cobra.Command{Use: "status", Short: "Show the status", Example: "  felixctl status -o json", Run: func(*cobra.Command, []string) {}}, Command())
		dir := filepath.Join(t.TempDir(), "man1")
		root.SetArgs([]string{"man", dir})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		pages := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			pages[e.Name()] = string(text)
		}
		return pages
	}
	pages, again := write(), write()
	if page := pages["felixctl-status.1"]; !strings.Contains(page, "felixctl status -o json") || !strings.Contains(page, "felixlike v1.2.3") || !strings.Contains(page, "Nov 2023") {
		t.Errorf("felixctl-status.1:\n%s", page)
	}
	if pages["felixctl.1"] == "" || pages["felixctl-man.1"] != "" {
		t.Errorf("pages %v", len(pages))
	}
	for name, text := range pages {
		if again[name] != text {
			t.Errorf("%s differs in a second run", name)
		}
	}
}
