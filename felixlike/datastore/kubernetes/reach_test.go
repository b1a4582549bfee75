package kubernetes_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestReach: an API server that answers is reached, whatever the answer and whichever of them. A balancer that accepts connections and leads
// nowhere is none.
func TestReach(t *testing.T) {
	serving := func(status int) string {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				t.Errorf("asked for %s", r.URL.Path)
			}
			w.WriteHeader(status)
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel completes handshakes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	nowhere := silent.Addr().String()
	for _, test := range []struct {
		name    string
		servers []string
		// fault is in the error, "" if one is reached.
		fault string
	}{
		{"one", []string{serving(200)}, ""},
		{"refuses us", []string{serving(401)}, ""},
		{"not ready", []string{serving(500)}, ""},
		{"a balancer without servers", []string{nowhere}, context.DeadlineExceeded.Error()},
		{"a gateway without servers", []string{serving(503)}, "503"},
		{"closed", []string{closed.Addr().String()}, "refused"},
		{"the second", []string{nowhere, serving(403)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := kubernetes.New(kubernetes.Options{
				Config:  &rest.Config{Host: "https://kubernetes.example:6443", TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
				Servers: test.servers, Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			wait := eventually.Patience
			if test.fault == context.DeadlineExceeded.Error() {
				wait = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			if err := s.Reach(ctx); (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault) {
				t.Errorf("%v, want %q", err, test.fault)
			}
		})
	}
}
