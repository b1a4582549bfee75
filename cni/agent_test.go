package cni_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/cnitest"
)

// serverEnv makes this test's binary run an agent's CNI server. A server needs all threads of
// its process in the node's namespace, so it runs in a separate process.
const serverEnv = "FELIXLIKE_CNI_TEST_SERVER"

// shortWait is the server's wait for policy in tests.
const shortWait = 500 * time.Millisecond

// plugins is the directory with felixlike-cni and host-local.
var plugins string

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverEnv); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code, err := withPlugins(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withPlugins builds the plugins.
func withPlugins(run func() int) (int, error) {
	var err error
	if plugins, err = os.MkdirTemp("", "felixlike-cni"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(plugins)
	if err := cnitest.Build(plugins); err != nil {
		return 1, err
	}
	return run(), nil
}

// serverConfig is the configuration of a server process.
type serverConfig struct {
	Socket, OVSDB, PluginDir, IPAMDir string
	Wait                              time.Duration
	// HashBits is the width of the hashes in names, zero for the usual one.
	HashBits uint
}

// serve is the process of a server.
func serve(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var c serverConfig
	data, err := os.ReadFile(filepath.Join(dir, "server.json"))
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := cni.NewServer(cni.ServerOptions{
		Socket: c.Socket, Bridge: "br-int", OVSDB: c.OVSDB, MTU: func() int { return 1450 },
		PluginDir: c.PluginDir, IPAMDir: c.IPAMDir, Agent: fakeAgent(dir), Log: log,
	})
	s.SetWait(c.Wait)
	s.SetHashBits(c.HashBits)
	return s.Run(ctx)
}

// fakeAgent is an agent that reads files in a directory: node.json is the node. With hold,
// policy never comes into force. refuse has the reason why it cannot, unavailable the reason
// why the agent is not ready. With panic, the agent panics.
type fakeAgent string

func (f fakeAgent) read(name string) (string, bool) {
	data, err := os.ReadFile(filepath.Join(string(f), name))
	return string(data), err == nil
}

func (f fakeAgent) set(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(string(f), name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f fakeAgent) unset(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(string(f), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// LocalNode implements cni.Agent.
func (f fakeAgent) LocalNode(ctx context.Context) (*model.Node, error) {
	text, ok := f.read("node.json")
	if !ok {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var n model.Node
	return &n, json.Unmarshal([]byte(text), &n)
}

// WaitPod implements cni.Agent.
func (f fakeAgent) WaitPod(ctx context.Context, a *model.Attachment, uid string) error {
	if why, ok := f.read("refuse"); ok {
		return errors.New(why)
	}
	if why, ok := f.read("panic"); ok {
		panic(why)
	}
	if _, ok := f.read("hold"); ok {
		<-ctx.Done()
		return fmt.Errorf("%w: it is held", ctx.Err())
	}
	if a.Sandbox == "" || a.OFPort == 0 || uid == "other" {
		return fmt.Errorf("attachment %+v of pod with uid %q", a, uid)
	}
	return nil
}

// Available implements cni.Agent.
func (f fakeAgent) Available(context.Context) error {
	if why, ok := f.read("unavailable"); ok {
		return errors.New(why)
	}
	return nil
}
