// Package docs has the documents of the repository, and tests of what they name.
package docs

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist: THREATS.md names tests of this repository. Where it names a package, the test is there.
func TestNamedTestsExist(t *testing.T) {
	text, err := os.ReadFile("THREATS.md")
	if err != nil {
		t.Fatal(err)
	}
	root := os.DirFS("..")
	has := func(dir, name string) (found bool) {
		err := fs.WalkDir(root, dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || found || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := fs.ReadFile(root, path)
			found = strings.Contains(string(source), "\nfunc "+name+"(")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	part := regexp.MustCompile("`([a-z0-9/]+)`:|`(Test[A-Za-z0-9]+)`|\n")
	dir, count := ".", 0
	for _, m := range part.FindAllStringSubmatch(string(text), -1) {
		switch {
		case m[1] != "":
			dir = m[1]
		case m[2] == "":
			dir = "."
		default:
			if count++; !has(dir, m[2]) {
				t.Errorf("%s has no test %s", dir, m[2])
			}
		}
	}
	if count < 30 {
		t.Errorf("only %d tests are named", count)
	}
}
