package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxLine bounds a line: a flow with 4,000 conjunctions has some 120 kB.
const MaxLine = 8 << 20

// Lines calls f with every line, from 1. A line of more than MaxLine bytes is an error.
func Lines(r io.Reader, f func(number int, line string) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), MaxLine)
	for n := 1; s.Scan(); n++ {
		if err := f(n, s.Text()); err != nil {
			return err
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line has more than %d bytes: this is no such listing", MaxLine)
	}
	return s.Err()
}

// Excerpt is as much of a text as an error message wants.
func Excerpt(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
