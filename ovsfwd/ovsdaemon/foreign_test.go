package ovsdaemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/eventually"
)

// TestForeignDaemons: Keep leaves a database that another process namespace serves alone until
// that has ended, as on a node where the pod of an older version ends. Then it serves the
// database, with what was written meanwhile.
func TestForeignDaemons(t *testing.T) {
	if err := Available(); err != nil {
		t.Skip(err)
	}
	ns := fmt.Sprintf("flx-ovsf-%d", os.Getpid())
	command(t, "ip", "netns", "add", ns)
	t.Cleanup(func() { command(t, "ip", "netns", "del", ns) })
	dir, err := TempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, database := filepath.Join(dir, "db.sock"), filepath.Join(dir, "conf.db")
	command(t, "ovsdb-tool", "create", database, Schema)
	other := exec.Command("unshare", "--pid", "--fork", "--kill-child", "ovsdb-server", "--no-chdir", "--pidfile="+pidFile(dir, "ovsdb-server"),
		"--log-file="+filepath.Join(dir, "other.log"), "-vconsole:off", "--remote=punix:"+socket, database)
	other.Env = append(os.Environ(), "OVS_RUNDIR="+dir)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = other.Process.Kill()
			_ = other.Wait()
		}
	}
	t.Cleanup(end)
	vsctl := func(args ...string) string {
		return command(t, "ovs-vsctl", append([]string{"--no-wait", "--timeout=10", "--db=unix:" + socket}, args...)...)
	}
	eventually.True(t, "the other database is served", func() bool { _, err := os.Stat(socket); return err == nil })
	vsctl("init")

	ctx, cancel := context.WithCancel(t.Context())
	var log logBuffer
	done := make(chan error, 1)
	go func() {
		done <- Keep(ctx, Options{Dir: dir, NetNS: ns}, Hooks{Serving: func(context.Context) {}, Away: func() {}, Ending: func() {}}, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	eventually.True(t, "the log names the other one", func() bool { return strings.Contains(log.String(), "ANOTHER OPEN VSWITCH") })
	time.Sleep(3 * foreignEvery)
	vsctl("add-br", "meanwhile")
	if strings.Contains(log.String(), "daemon runs") {
		t.Errorf("a second daemon was started:\n%s", log.String())
	}
	end()
	eventually.True(t, "the daemons run", func() bool { return strings.Count(log.String(), "daemon runs") == 1 })
	if got := vsctl("list-br"); got != "meanwhile\n" {
		t.Errorf("bridges %q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
