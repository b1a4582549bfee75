package rootsocket_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/rootsocket"
)

// dialEnv makes this test's binary open a socket and print the bytes that it reads.
const dialEnv = "FELIXLIKE_ROOTSOCKET_TEST_DIAL"

func TestMain(m *testing.M) {
	path := os.Getenv(dialEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := io.ReadAll(conn)
	fmt.Print(string(text), err)
}

func listen(t *testing.T) (*rootsocket.Socket, string) {
	t.Helper()
	// Not t.TempDir, which others may not enter.
	dir, err := os.MkdirTemp("", "flx-socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	s, err := rootsocket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, path
}

// TestOnlyRoot opens the socket's mode to all, so that only the check of the
// caller is left, and has another user try first.
func TestOnlyRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	s, path := listen(t)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := errors.Join(os.Chmod(path, 0o666), os.Chmod(filepath.Dir(path), 0o755)); err != nil {
		t.Fatal(err)
	}
	go func() {
		for only := rootsocket.RootOnly(s); ; {
			conn, err := only.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("hello")) // the reader prints it
			conn.Close()
		}
	}()
	for uid, want := range map[uint32]string{0: "hello", 65534: ""} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{dialEnv + "=" + path}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if got := strings.HasPrefix(string(out), "hello"); err != nil || got != (want != "") {
			t.Errorf("user %d read %q, %v; want %q", uid, out, err, want)
		}
	}
}

func TestOneOwner(t *testing.T) {
	s, path := listen(t)
	if _, err := rootsocket.Listen(path); err == nil || !strings.Contains(err.Error(), "another agent is running") {
		t.Errorf("a second owner: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
	// A new socket replaces that of a killed process.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	again, err := rootsocket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Error(err)
	}
}
