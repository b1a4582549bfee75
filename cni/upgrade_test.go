package cni_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/internal/socketapi"
	"github.com/felixlike/felixlike/test/cnitest"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestUpgradeUnderChurn replaces an agent of the release before by a new one, while pods come
// and go. Until the new agent serves, each call of the new plugin asks the runtime to try
// again. Then every pod is added, and removed without leftovers.
func TestUpgradeUnderChurn(t *testing.T) {
	r := newRuntime(t)
	churn, end := context.WithCancel(r.ctx)
	defer end()
	var pods sync.WaitGroup
	var added, again atomic.Int64
	for i := range 4 {
		s := r.sandbox(fmt.Sprintf("sandbox-%d", i), fmt.Sprintf("pod-%d", i))
		pods.Go(func() {
			for last := false; !last; {
				last = churn.Err() != nil
				for _, command := range []string{"ADD", "DEL"} {
					if err := r.tryUntilDone(command, s, &again); err != nil {
						t.Error(err)
						return
					}
				}
				added.Add(1)
			}
		})
	}
	more := func(what string, counter *atomic.Int64) {
		t.Helper()
		from := counter.Load()
		eventually.True(r, what, func() bool { return counter.Load() >= from+8 || t.Failed() })
	}
	more("pods come and go", &added)
	r.stop(syscall.SIGTERM)
	previous, err := net.Listen("unix", r.conf.Socket)
	r.must(err)
	var refused atomic.Int64
	served := make(chan error, 1)
	go func() { served <- cnitest.ServePreviousAgent(previous, func() { refused.Add(1) }) }()
	more("the previous agent refuses plugins", &refused)
	previous.Close()
	r.must(<-served)
	r.start()
	more("pods come and go again", &added)
	end()
	pods.Wait()
	if got := r.left(); got != nothing {
		t.Error(got)
	}
	t.Logf("%d pods added and removed, %d calls tried again", added.Load(), again.Load())
}

// tryUntilDone calls the plugin until it succeeds, as a runtime does that gets the code for
// "try again". Any other code is an error.
func (r *runtime) tryUntilDone(command string, s cnitest.Sandbox, again *atomic.Int64) error {
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	for {
		got, err := r.Call(ctx, command, "1.1.0", s, nil)
		switch {
		case err != nil:
			return err
		case !got.Failed:
			return nil
		case got.Code != 11:
			return fmt.Errorf("%s of %s: %s", command, s.ID, got.Raw)
		}
		again.Add(1)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s of %s, for a minute: %s", command, s.ID, got.Raw)
		case <-time.After(20 * time.Millisecond): // the runtime's pause
		}
	}
}

// TestPreviousPlugin: the plugin of the release before gets gRPC's code for an unknown call,
// on which it asks the runtime to try again, and the reason.
func TestPreviousPlugin(t *testing.T) {
	r := newRuntime(t)
	sent, err := hex.DecodeString(cnitest.PreviousPluginAdd)
	r.must(err)
	conn, err := net.Dial("unix", r.conf.Socket)
	r.must(err)
	defer conn.Close()
	r.must(conn.SetDeadline(time.Now().Add(10 * time.Second)))
	_, err = conn.Write(sent)
	r.must(err)
	frames := http2.NewFramer(conn, conn)
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := frames.ReadFrame()
		r.must(err)
		headers, ok := frame.(*http2.MetaHeadersFrame)
		if !ok {
			continue
		}
		got := map[string]string{}
		for _, f := range headers.Fields {
			got[f.Name] = f.Value
		}
		if got[":status"] != "200" || got["content-type"] != "application/grpc" || got["grpc-status"] != "12" ||
			!strings.Contains(got["grpc-message"], "try again when the new plugin is installed") || !headers.StreamEnded() {
			t.Errorf("answer %v", headers)
		}
		break
	}
	r.ok("STATUS", "1.1.0", cnitest.Sandbox{}, nil)
	if got := r.left(); got != nothing {
		t.Error(got)
	}
}

// TestOtherVersions: the agent refuses unknown versions and calls with codes on which the
// plugin asks the runtime to try again. It ignores unknown fields.
func TestOtherVersions(t *testing.T) {
	r := newRuntime(t)
	agent := socketapi.NewClient(r.conf.Socket)
	for path, want := range map[string]socketapi.Code{"/v3/add": socketapi.UnknownVersion, "/v2/new": socketapi.UnknownPath} {
		err := agent.Call(r.ctx, http.MethodPost, path, nil, struct{}{}, nil)
		var refused *socketapi.Error
		if !errors.As(err, &refused) || refused.Code != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if err := agent.Call(r.ctx, http.MethodPost, protocol.StatusPath, nil, map[string]int{"new": 1}, nil); err != nil {
		t.Error(err)
	}
}
