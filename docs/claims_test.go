// Package docs has the documents of the repository, and tests of what they name.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNamedTestsExist: the pages of claims and of threats name tests of this repository. Where they name a package, the test is there.
func TestNamedTestsExist(t *testing.T) {
	all := testNames(t)
	for page, least := range map[string]int{"results/claims.md": 300, "results/threats.md": 30} {
		count := namedTests(t, page, func(dir, name string) {
			if !slices.ContainsFunc(all[name], func(path string) bool { return dir == "" || path == dir || strings.HasPrefix(path, dir+"/") }) {
				t.Errorf("%s: %s has no test %s", page, dir, name)
			}
		})
		if count < least {
			t.Errorf("%s: only %d tests are named", page, count)
		}
	}
}

// TestLengthOfReadme: a reader decides after one page. It has what it is, for whom, what nobody else has, how to install it, and links.
func TestLengthOfReadme(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n > 600 {
		t.Errorf("README.md has %d words, more than 600", n)
	}
}

// TestPagesOfUsers: a page that users read begins with a sentence, has at most 2,000 words, and names no test: results/claims.md does.
func TestPagesOfUsers(t *testing.T) {
	for _, page := range pages(t) {
		top, _, _ := strings.Cut(filepath.ToSlash(page), "/")
		if top == "results" || top == "design" || top == ".." {
			continue
		}
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if strings.Contains(text, generated) {
			continue
		}
		if n := len(strings.Fields(text)); n > 2000 {
			t.Errorf("%s has %d words", page, n)
		}
		if first := regexp.MustCompile(`(?m)\A# .+\n\n(.*)$`).FindStringSubmatch(text); first == nil || !regexp.MustCompile(`^[\w\[`+"`"+`'*]`).MatchString(first[1]) {
			t.Errorf("%s does not begin with a sentence", page)
		}
		if name := regexp.MustCompile("`(Test|Benchmark|Fuzz)[A-Z]\\w+").FindString(text); name != "" {
			t.Errorf("%s names the test %s", page, name)
		}
	}
}

// generated begins the comment of pages that a program writes.
const generated = "<!-- written by "

// namedTests calls f with each test that a page names, and with the package before it in the same line or cell of a table, and returns their number.
func namedTests(t *testing.T, page string, f func(dir, name string)) (count int) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	dir := ""
	part := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)|`([a-zA-Z0-9/]+)`[: ]|\n| \\| ")
	for _, m := range part.FindAllStringSubmatch(string(text), -1) {
		switch {
		case m[1] != "":
			f(dir, m[1])
			count++
		case m[2] == "":
			dir = ""
		case isPackage(m[2]):
			dir = m[2]
		}
	}
	return count
}

func isPackage(dir string) bool {
	info, err := os.Stat(filepath.Join("..", dir))
	return err == nil && info.IsDir()
}

// testNames returns the directories of the tests, benchmarks and fuzz tests of this repository, by name.
func testNames(t *testing.T) map[string][]string {
	t.Helper()
	all, root := map[string][]string{}, os.DirFS("..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(root, path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`).FindAllStringSubmatch(string(source), -1) {
			all[m[1]] = append(all[m[1]], filepath.ToSlash(filepath.Dir(path)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
