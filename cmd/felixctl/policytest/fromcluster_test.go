package policytest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/test/eventually"
)

// holder is an agent that has objects.
type holder struct {
	control.Agent
	objects control.Objects
}

func (h *holder) Status() control.Status { return control.Status{} }

func (h *holder) Objects(context.Context) (control.Objects, error) { return h.objects, nil }

// TestFromTheSocket writes a test from what an agent answers at its socket, and nothing before its first listing is complete.
func TestFromTheSocket(t *testing.T) {
	in, err := Read([]string{examples + "/cluster.yaml", examples + "/policies"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{t: &Test{}, objects: in.Objects}
	b.build()
	agent := &holder{objects: b.objects}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	ask := func() (string, error) {
		var out bytes.Buffer
		c := Command()
		c.SetArgs([]string{"--from-cluster", "--socket", socket})
		c.SetOut(&out)
		c.SetErr(io.Discard)
		c.SilenceUsage, c.SilenceErrors = true, true
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := ask(); err == nil || out != "" || !strings.Contains(err.Error(), "no agent listens at "+socket) {
		t.Errorf("without an agent: %v, %q", err, out)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- control.Serve(ctx, socket, agent, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	eventually.True(t, "the socket is served", func() bool {
		_, err := control.NewClient(socket).Status(t.Context())
		return err == nil
	})
	agent.objects.InSync = false
	if out, err := ask(); err == nil || out != "" || !strings.Contains(err.Error(), "first listing") {
		t.Errorf("before the first listing: %v, %q", err, out)
	}
	agent.objects.InSync = true
	text, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	written := filepath.Join(dir, "written.yaml")
	if err := os.WriteFile(written, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err = Read([]string{written, examples + "/policies"}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if r, err := Run(t.Context(), in); err != nil || !r.Holds() {
		t.Errorf("%v, %+v\n%s", err, r, text)
	}
}
