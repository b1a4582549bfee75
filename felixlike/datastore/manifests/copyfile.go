package manifests

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/felixlike/felixlike/internal/files"
)

// copyHeader is the first line of a copy. The other lines are copiedObjects. The names are quoted as in Go, since
// JSON has no bytes that are not UTF-8.
type copyHeader struct {
	Directory string `json:"directory"`
	File      string `json:"file"`
	// SHA256 is that of the other lines, in hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// copiedObject is one object of a copy.
type copiedObject struct {
	Read   time.Time       `json:"read"`
	Object json.RawMessage `json:"object"`
	// Error says why only the identity of the object can be trusted.
	Error string `json:"error,omitempty"`
}

// readOwn reads a file that only this user could have written.
func readOwn(path string, most int64) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !isOurs(info) || info.Mode()&0o022 != 0 {
		return nil, errors.New("another user could have written it")
	}
	return files.Read(path, most)
}

// decode returns the file that a copy describes, or nil if it is of another directory.
func (c *copies) decode(name string, data []byte) (*file, error) {
	first, body, _ := bytes.Cut(data, []byte("\n"))
	var header copyHeader
	if err := json.Unmarshal(first, &header); err != nil {
		return nil, err
	}
	switch {
	case header.Directory != strconv.Quote(c.source):
		return nil, nil
	case header.File != strconv.Quote(name):
		return nil, fmt.Errorf("it is of %s", header.File)
	case header.SHA256 != sumOf(body):
		return nil, errors.New("its checksum is wrong")
	}
	p := &parser{file: name, services: c.services, seen: map[key]bool{}}
	for line := range bytes.Lines(body) {
		var o copiedObject
		if err := json.Unmarshal(line, &o); err != nil {
			return nil, err
		}
		d := document{json: o.Object}
		if o.Error != "" {
			d.err = errors.New(o.Error)
		}
		before := len(p.content.entries)
		p.document(place{number: 1, line: 1}, d)
		for i := range p.content.entries[before:] {
			v := p.content.entries[before+i].version
			v.read, v.restored = o.Read, true
		}
	}
	// Problems without an object belong to text that the copy does not have.
	return &file{name: name, services: c.services, content: content{entries: p.content.entries}, restored: true}, nil
}

// writeOne brings one copy to the disk, and reports whether it had to.
func (c *copies) writeOne(name string, versions []*version) (bool, error) {
	path := filepath.Join(c.dir, name)
	c.mu.Lock()
	old, others := c.held[name], 0
	for n, h := range c.held {
		if n != name {
			others += h.size
		}
	}
	c.mu.Unlock()
	if versions == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		c.mu.Lock()
		delete(c.held, name)
		c.mu.Unlock()
		return true, nil
	}
	data, err := c.encode(name, versions)
	if err != nil {
		return false, err
	}
	now := heldCopy{sum: sumOf(data), size: len(data)}
	if now == old {
		return false, nil
	}
	if others+len(data) > maxCopies {
		return false, fmt.Errorf("%s: the copies would have more than %d bytes", name, maxCopies)
	}
	if err := replace(c.dir, path, data); err != nil {
		return false, err
	}
	c.mu.Lock()
	c.held[name] = now
	c.mu.Unlock()
	return true, nil
}

// encode returns the text of a copy.
func (c *copies) encode(name string, versions []*version) ([]byte, error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	lines.SetEscapeHTML(false)
	for _, v := range versions {
		o := copiedObject{Read: v.read, Object: v.document.json}
		if v.document.err != nil {
			o.Error = v.document.err.Error()
		}
		if err := lines.Encode(o); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	header, err := json.Marshal(copyHeader{Directory: strconv.Quote(c.source), File: strconv.Quote(name), SHA256: sumOf(body.Bytes())})
	return slices.Concat(header, []byte("\n"), body.Bytes()), err
}

// makeDir makes the directory of the copies, for this user alone.
func (c *copies) makeDir() error {
	if err := os.MkdirAll(filepath.Dir(c.dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(c.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(c.dir)
	if err != nil {
		return err
	}
	switch {
	case !info.IsDir():
		return &os.PathError{Op: "open", Path: c.dir, Err: syscall.ENOTDIR}
	case !isOurs(info):
		return fmt.Errorf("%s belongs to another user", c.dir)
	case info.Mode()&0o077 == 0:
		return nil
	}
	return os.Chmod(c.dir, 0o700)
}

// replace writes a file such that it has either the old or the new content, also after a loss of power.
func replace(dir, path string, data []byte) error {
	temporary := filepath.Join(dir, newCopy)
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|noFollow, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		// The first error counts; without this, a full disk would keep a part of a file.
		_ = os.Remove(temporary)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
