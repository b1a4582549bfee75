package ctl

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/test/eventually"
)

// versioned is an agent that answers its version alone.
type versioned struct {
	control.Agent
	version string
}

func (v versioned) Status() control.Status { return control.Status{AgentVersion: v.version} }

// serves waits until an agent answers at the socket.
func serves(t *testing.T, socket string) {
	t.Helper()
	eventually.True(t, "the control socket is served", func() bool {
		_, err := control.NewClient(socket).Status(context.Background())
		return err == nil
	})
}

func TestVersion(t *testing.T) {
	own := version.String()
	for _, c := range []struct {
		agent, skew string
		err         error
	}{
		{own, "skew:   none\n", nil},
		{"v0.1.99 (go1.26.8)", "skew:   supported\n", nil},
		{"v9.0.0 (go1.26.8)", "skew:   unsupported: use the felixctl of the agent's version\n", report.ErrFaults},
		{"", "agent:  unknown: no agent listens at ", nil},
	} {
		socket := filepath.Join(t.TempDir(), "s")
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		if c.agent != "" {
			go func() {
				done <- control.Serve(ctx, socket, versioned{version: c.agent}, slog.New(slog.DiscardHandler))
			}()
			serves(t, socket)
		} else {
			done <- nil
		}
		var out bytes.Buffer
		cmd := versionCommand()
		cmd.SetArgs([]string{"--socket", socket})
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		if err := cmd.Execute(); !errors.Is(err, c.err) {
			t.Errorf("agent %q: error %v, want %v", c.agent, err, c.err)
		}
		if !strings.Contains(out.String(), "client: "+own+"\n") || !strings.Contains(out.String(), c.skew) {
			t.Errorf("agent %q:\n%swant %q", c.agent, &out, c.skew)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
