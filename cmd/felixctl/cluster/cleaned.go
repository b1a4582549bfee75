package cluster

import (
	"io"
	"unicode/utf8"

	"github.com/felixlike/felixlike/internal/printable"
)

// cleaned passes on what a node writes, made printable. A character may come in two pieces.
type cleaned struct {
	to   io.Writer
	rest []byte
}

// Write passes the whole characters on.
func (c *cleaned) Write(text []byte) (int, error) {
	all := append(c.rest, text...)
	whole := len(all)
	for i := max(0, len(all)-utf8.UTFMax+1); i < len(all); i++ {
		if utf8.RuneStart(all[i]) && !utf8.FullRune(all[i:]) {
			whole = i
			break
		}
	}
	c.rest = append([]byte(nil), all[whole:]...)
	if _, err := io.WriteString(c.to, printable.Lines(string(all[:whole]))); err != nil {
		return 0, err
	}
	return len(text), nil
}
