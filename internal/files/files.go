// Package files reads files that users name. It reads regular files only, up to a
// bound: a FIFO, a device or an archive that unpacks without end is an error at once.
// It goes through listings line by line, with bounded lines.
//
// It knows no format. It is tested on real files.
package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrTooLarge means that the input is longer than its bound.
var ErrTooLarge = errors.New("too large")

// Open opens a regular file of at most that many bytes.
func Open(path string, most int64) (*os.File, error) {
	// Opening a FIFO would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s: not a regular file", path)
	case info.Size() > most:
		err = fmt.Errorf("%s: %w: more than %d bytes", path, ErrTooLarge, most)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read reads a regular file of at most that many bytes.
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path, most)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(Bounded(f, most))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// Bounded returns a reader that fails with ErrTooLarge beyond that many bytes.
func Bounded(r io.Reader, most int64) io.Reader { return &bounded{r: r, left: most, most: most} }

type bounded struct {
	r          io.Reader
	left, most int64
}

// Read reads the next bytes.
func (b *bounded) Read(p []byte) (int, error) {
	// One byte beyond the bound shows that the input is too long.
	n, err := b.r.Read(p[:min(int64(len(p)), b.left+1)])
	if int64(n) > b.left {
		n = int(b.left)
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, b.most)
	}
	b.left -= int64(n)
	return n, err
}
