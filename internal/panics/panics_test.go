package panics

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func fails(at int, cause string) func() error {
	return func() error {
		if at == 1 {
			panic(cause)
		}
		panic("another " + cause)
	}
}

// The log has one stack for each place of the program, for any goroutine, argument or
// cause of the panic.
func TestEachStackOnce(t *testing.T) {
	var out bytes.Buffer
	log, l := slog.New(slog.NewTextHandler(&out, nil)), &Log{}
	for _, p := range []struct {
		at    int
		cause string
		want  string
	}{
		{1, "a", "stack="}, {1, "b", "times=2"}, {2, "a", "stack="}, {1, "c", "times=3"}, {2, "a", "times=2"},
	} {
		err := make(chan error)
		go func() { err <- Guard(fails(p.at, p.cause)) }()
		out.Reset()
		l.With(log, <-err).Error("failed")
		if got := out.String(); !strings.Contains(got, p.want) || strings.Count(got, "\n") != 1 || strings.Contains(got, "stack=") != (p.want == "stack=") {
			t.Errorf("place %d, cause %s: no %s in %s", p.at, p.cause, p.want, got)
		}
	}
	out.Reset()
	l.With(log, errors.New("no panic")).Error("failed")
	if got := out.String(); strings.Contains(got, "stack=") || strings.Contains(got, "times=") {
		t.Errorf("an error that is no panic: %s", got)
	}
}
