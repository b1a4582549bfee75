package control

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// httpClient is a client that is not ours.
func httpClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
}

// TestProfiles: go tool pprof gets a profile through the socket.
func TestProfiles(t *testing.T) {
	path, stop := serve(t, &fakeAgent{})
	defer func() { _ = stop() }()
	client := httpClient(path)
	for _, c := range []struct {
		method, path, begins string
		code                 int
	}{
		{http.MethodGet, "/v1/debug/pprof/heap", "\x1f\x8b", 200}, // gzip
		{http.MethodGet, "/v1/debug/pprof/profile?seconds=1", "\x1f\x8b", 200},
		{http.MethodGet, "/v1/debug/pprof/goroutine?debug=1", "goroutine profile:", 200},
		{http.MethodGet, "/v1/debug/pprof/cmdline", "Unknown profile", 404},
		{http.MethodPost, "/v1/debug/pprof/heap", `{"error":"POST`, 405},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, "http://agent"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != c.code || !strings.HasPrefix(string(body), c.begins) {
			t.Errorf("%s %s: %d, %.40q", c.method, c.path, answer.StatusCode, body)
		}
	}
}
