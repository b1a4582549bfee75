package control

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// asUserEnv makes the test binary a client of another user (see TestMain).
const asUserEnv = "FELIXLIKE_TEST_CONTROL_SOCKET"

func TestMain(m *testing.M) {
	if path := os.Getenv(asUserEnv); path != "" {
		_, err := NewClient(path).Status(context.Background())
		fmt.Println(err)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestModes(t *testing.T) {
	path, _ := serve(t, &fakeAgent{})
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("mode of %s = %o; want %o", name, info.Mode().Perm(), want)
		}
	}
}

func TestSecondAgentIsRefused(t *testing.T) {
	agent := &fakeAgent{}
	path, _ := serve(t, agent)
	err := Serve(context.Background(), path, agent, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "another agent is running") {
		t.Errorf("error = %v; want another agent", err)
	}
	if _, err := NewClient(path).Status(context.Background()); err != nil {
		t.Errorf("the first agent after the second tried: %v", err)
	}
}

func TestForeignListenerIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = Serve(context.Background(), path, &fakeAgent{}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "another process is listening") {
		t.Errorf("error = %v; want another process", err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	if _, err := NewClient(path).Status(context.Background()); !NotRunning(err) {
		t.Fatalf("error = %v; want not running", err)
	}
	serveAt(t, path, &fakeAgent{})
}

func TestOtherFilesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Serve(context.Background(), path, &fakeAgent{}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("error = %v; want not a socket", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("file = %q, %v; want it untouched", data, err)
	}
}

// TestOtherUserIsRefused opens the socket's mode to all, so that only the check of the caller's uid is left,
// and calls as the user nobody.
func TestOtherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	dir, err := os.MkdirTemp("", "flx-control-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "control.sock")
	serveAt(t, path, &fakeAgent{})
	binary := filepath.Join(dir, "client")
	if err := copyFile(os.Args[0], binary); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(binary)
	command.Dir = dir
	command.Env = []string{asUserEnv + "=" + path}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("client as user nobody: %v\n%s", err, output)
	}
	// The connection is closed, before or after the request was written.
	closed := []string{"EOF", "reset by peer", "broken pipe", "server closed idle connection"}
	if text := string(output); !slices.ContainsFunc(closed, func(how string) bool { return strings.Contains(text, how) }) {
		t.Errorf("user nobody received %q; want a connection that is closed", output)
	}
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
