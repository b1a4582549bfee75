package kubernetes_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/test/kubernetestest"
)

// TestTokenIsNotLogged: the log at the lowest possible level, which has all of client-go's messages, and the problems of a batch never have the token, whether the
// API server answers, refuses or breaks off.
func TestTokenIsNotLogged(t *testing.T) {
	const canary = "canary-8c1f0d5e"
	f := newFixture(t)
	f.pods(t, "a")
	lines := &logLines{}
	v := kubernetestest.Open(t, f.Config(canary), slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.Level(-100)})))
	v.Sync(t)
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusInternalServerError} {
		before := f.Refusals("pods")
		f.Refuse(status, "pods")
		f.Break()
		for f.Refusals("pods") == before {
			f.Break()
		}
		f.Refuse(0, "pods")
	}
	f.pods(t, "b")
	f.Stop()
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	for _, p := range v.Sync(t).Last.Problems {
		if strings.Contains(p.Error(), canary) {
			t.Errorf("a problem has the token: %v", p)
		}
	}
	text := lines.String()
	if !strings.Contains(text, "pods") {
		t.Error("nothing is logged about the refusals")
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, canary) {
			t.Errorf("the log has the token: %s", line)
		}
	}
}
