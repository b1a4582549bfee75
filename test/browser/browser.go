// Package browser has what tests with a real browser share.
package browser

import (
	"os"
	"testing"

	"github.com/felixlike/felixlike/test/eventually"
)

// Profile makes a folder for a browser, and removes it in the end. t.TempDir will not do: processes of a browser that has ended may still
// write into it.
func Profile(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "felixlike-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually.True(t, "the browser's folder can be removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	return dir
}
