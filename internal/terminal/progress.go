package terminal

import (
	"fmt"
	"io"
	"time"
)

// progressEvery bounds the time without output.
const progressEvery = 2 * time.Second

// Progress writes a line every two seconds that names the work in progress, until
// the returned function is called. Faster work prints nothing.
func Progress(w io.Writer, what func() string) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	start := time.Now()
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				// A terminal that is gone does not stop the work.
				_, _ = fmt.Fprintf(w, "%s (%s)\n", what(), time.Since(start).Round(time.Second))
			}
		}
	}()
	return func() { close(end); <-ended }
}

// Doing returns a constant text for Progress.
func Doing(what string) func() string { return func() string { return what } }
