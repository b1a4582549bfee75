package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLinks: each link of a page to a file of this repository leads to a file, and to a heading of it if it names one.
func TestLinks(t *testing.T) {
	count, headings := 0, map[string][]string{}
	for _, page := range pages(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)\s:#]*)(?:#([^)\s]+))?\)`).FindAllStringSubmatch(prose(t, page), -1) {
			file := page
			if m[1] != "" {
				file = filepath.Join(filepath.Dir(page), filepath.FromSlash(m[1]))
			}
			count++
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if m[2] == "" || filepath.Ext(file) != ".md" {
				continue
			}
			if _, known := headings[file]; !known {
				headings[file] = anchors(t, file)
			}
			if !slices.Contains(headings[file], m[2]) {
				t.Errorf("%s: %s has no heading #%s", page, file, m[2])
			}
		}
	}
	if count < 300 {
		t.Errorf("only %d links", count)
	}
}

// pages returns the pages of docs and of its folders, and those at the root of the repository.
func pages(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".md" {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(all, root...)
}

// prose returns a page without its indented lines, which are code.
func prose(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^( {4}|\t).*$`).ReplaceAllString(string(text), "")
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(t *testing.T, page string) (all []string) {
	t.Helper()
	count := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(t, page), -1) {
		title := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(strings.ToLower(m[1]), "$1")
		anchor := strings.ReplaceAll(regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(title, ""), " ", "-")
		if n := count[anchor]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			all = append(all, anchor)
		}
		count[anchor]++
	}
	return all
}
