package files_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/files"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("small"), []byte("12345"), 0o600), os.WriteFile(at("large"), []byte("123456"), 0o600), unix.Mkfifo(at("fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if data, err := files.Read(at("small"), 5); err != nil || string(data) != "12345" {
		t.Errorf("%q, %v", data, err)
	}
	for path, want := range map[string]string{
		at("large"): "more than 5 bytes", at("fifo"): "not a regular file", dir: "not a regular file",
		"/dev/zero": "not a regular file", at("none"): "no such file",
	} {
		if _, err := files.Read(path, 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	// The kernel reports size zero for this file, and it has content.
	if _, err := files.Read("/proc/self/maps", 5); !errors.Is(err, files.ErrTooLarge) {
		t.Errorf("a file that grows: %v", err)
	}
}

func TestBounded(t *testing.T) {
	for size := range 20 {
		text := bytes.Repeat([]byte{'x'}, size)
		got, err := io.ReadAll(io.MultiReader(files.Bounded(io.MultiReader(bytes.NewReader(text[:size/2]), bytes.NewReader(text[size/2:])), 10)))
		if errors.Is(err, files.ErrTooLarge) != (size > 10) || len(got) != min(size, 10) {
			t.Errorf("%d bytes: read %d, %v", size, len(got), err)
		}
	}
}
