package socketapi

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// FuzzRequest sends any request to a server, as those of the control socket and the CNI plugin are. Each gets an answer in
// JSON with a status, and only a body that is whole reaches the call.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{"", "{", "{}", "null", `{"name":"a"}`, `{"name":1}`, `{"name":"a"}{}`, `{"other":1}`, `{"name":"a","name":"b"}`, "\xff"} {
		for _, path := range []string{"/v1/echo", "/v2/echo", "/v1/", "//", "/v1/echo?timeout=x", "/v1/echo?timeout=-1s"} {
			f.Add(http.MethodPost, path, []byte(text))
		}
		f.Add(http.MethodGet, "/v1/echo", []byte(text))
	}
	s := NewServer(Config{
		Version: "v1", MaxBody: 100, MaxConnections: 10, Strict: true, Log: slog.New(slog.DiscardHandler),
		Routes: []Route{Post("/v1/echo", func(_ context.Context, b *body) (*body, error) { return b, nil })},
	})
	f.Fuzz(func(t *testing.T, method, path string, text []byte) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://agent"+path, bytes.NewReader(text))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %s %q: status %d, %q", method, path, text, w.Code, w.Body)
		}
		if w.Code == http.StatusOK && !json.Valid(text) {
			t.Fatalf("%q is accepted", text)
		}
	})
}
