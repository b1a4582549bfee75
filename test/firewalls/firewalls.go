// Package firewalls runs the real ufw, firewalld and docker in a network namespace of a test. They come from Debian's packages, into a folder: the machine
// gets nothing.
package firewalls

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/test/cluster/kubelab"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/tablestest"
)

// Root is a root of files in which the programs run.
type Root struct {
	// pid is the first process in it, group the control group of its containers.
	pid, group string
}

// New makes a root in a network namespace, with a variant of iptables, "nft" or "legacy", until the test ends. It skips the test if the programs cannot be
// had.
func New(t testing.TB, in tablestest.Namespace, variant string) *Root {
	t.Helper()
	here, dir := folders(t)
	if _, err := os.Stat(filepath.Join(dir, "complete")); err != nil {
		t.Skipf("no ufw, firewalld and docker: %s %s installs them there, and nothing else", filepath.Join(here, "install"), dir)
	}
	// Not ip netns exec, which hides the control groups.
	c := exec.Command("nsenter", "--net=/run/netns/"+in.Name, "unshare", "--mount", "--pid", "--fork", "--kill-child", filepath.Join(here, "root"), dir, "iptables-"+variant)
	said, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	c.Stderr = &complaints
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	group := "/" + in.Name
	t.Cleanup(func() {
		_ = c.Process.Kill() // and all that runs in the root, by --kill-child
		_ = c.Wait()
		eventually.True(t, "the control groups of containers are gone", func() bool { // they empty as the processes end
			_ = exec.Command("find", "/sys/fs/cgroup", "-depth", "-path", "*"+group+"*", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
			left, err := exec.Command("find", "/sys/fs/cgroup", "-path", "*"+group, "-type", "d").Output()
			return err == nil && len(left) == 0
		})
	})
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		_ = c.Wait()
		t.Fatalf("a root for firewalls: %s%s", line, complaints.String())
	}
	return &Root{strings.TrimSpace(tablestest.Command(t, "", "pgrep", "-P", strconv.Itoa(c.Process.Pid))), group}
}

// folders returns the folder of the scripts, and that of the programs, which test/scripts/setup fills.
func folders(t testing.TB) (scripts, programs string) {
	t.Helper()
	root, err := kubelab.Root()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	return filepath.Join(root, "test/firewalls"), filepath.Join(cache, "felixlike", "firewalls")
}

// Run runs a shell script in the root and returns its output. GROUP is the control group for containers (dockerd --cgroup-parent): it goes with the test.
func (r *Root) Run(t testing.TB, script string) string {
	t.Helper()
	return tablestest.Command(t, "", "timeout", "180", "env", "GROUP="+r.group, "nsenter", "--target", r.pid, "--mount", "--pid", "--net", "--root", "--wd", "sh", "-ec", script)
}
