package cni_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/cnitest"
	"github.com/felixlike/felixlike/test/eventually"
)

// runtime calls the plugin as a container runtime does. The node's CNI server runs in a
// separate process.
type runtime struct {
	*node
	cnitest.Runtime
	agent fakeAgent
	dir   string
	conf  serverConfig
	cmd   *exec.Cmd
	ended chan error
}

func newRuntime(t *testing.T) *runtime {
	t.Helper()
	r := &runtime{node: newNode(t), dir: t.TempDir()}
	r.agent = fakeAgent(r.dir)
	r.conf = serverConfig{
		Socket: filepath.Join(r.dir, "run", "cni.sock"), OVSDB: r.ovs.DBSocket(),
		PluginDir: plugins, IPAMDir: filepath.Join(r.dir, "networks"), Wait: shortWait,
	}
	r.Runtime = cnitest.Runtime{Plugins: plugins, Socket: r.conf.Socket}
	r.setNode("10.9.0.0/24", "fd09::/64")
	r.start()
	return r
}

func (r *runtime) setNode(prefixes ...string) {
	r.Helper()
	n := model.Node{Name: "n1"}
	for _, p := range prefixes {
		n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(p))
	}
	data, err := json.Marshal(n)
	r.must(err)
	r.agent.set(r.T, "node.json", string(data))
}

// start starts the server's process in the node's namespace.
func (r *runtime) start() {
	r.Helper()
	data, err := json.Marshal(r.conf)
	r.must(err)
	r.must(os.WriteFile(filepath.Join(r.dir, "server.json"), data, 0o600))
	log, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	r.must(err)
	defer log.Close()
	r.cmd, r.ended = exec.Command("/proc/self/exe"), make(chan error, 1)
	r.cmd.Env = append(os.Environ(), serverEnv+"="+r.dir)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.must(r.ns.Do(r.cmd.Start))
	cmd, ended := r.cmd, r.ended
	go func() { ended <- cmd.Wait() }()
	r.Cleanup(func() { r.stop(syscall.SIGKILL) })
	eventually.True(r, "the server serves", func() bool {
		return !strings.Contains(r.call("STATUS", "1.1.0", cnitest.Sandbox{}, nil).Raw, "dial unix")
	})
}

// stop ends the server's process, if it runs.
func (r *runtime) stop(signal syscall.Signal) {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Signal(signal)
	<-r.ended
	r.cmd = nil
	if r.Failed() {
		text, _ := os.ReadFile(filepath.Join(r.dir, "log"))
		r.Logf("log of the server:\n%s", text)
	}
}

func (r *runtime) sandbox(id, pod string) cnitest.Sandbox {
	r.Helper()
	return cnitest.Sandbox{ID: id, Namespace: "x", Pod: pod, Interface: "eth0", NS: space(r.T, id)}
}

// call runs the plugin.
func (r *runtime) call(command, version string, s cnitest.Sandbox, extra map[string]any) cnitest.Reply {
	r.Helper()
	got, err := r.Call(r.ctx, command, version, s, extra)
	r.must(err)
	return got
}

// ok calls the plugin, and fails the test on an error.
func (r *runtime) ok(command, version string, s cnitest.Sandbox, extra map[string]any) cnitest.Reply {
	r.Helper()
	got := r.call(command, version, s, extra)
	if got.Failed {
		r.Fatalf("%s of %s: %s", command, s.ID, got.Raw)
	}
	return got
}

// fails calls the plugin, and wants an error with a code and a text.
func (r *runtime) fails(command string, s cnitest.Sandbox, extra map[string]any, code uint, text string) {
	r.Helper()
	got := r.call(command, "1.1.0", s, extra)
	if !got.Failed || got.Code != code || !strings.Contains(got.Msg+got.Details, text) {
		r.Errorf("%s of %s: want code %d and %q: %s", command, s.ID, code, text, got.Raw)
	}
}

// address returns a sandbox's IPv4 address in the form of ip's arguments.
func (r *runtime) address(s cnitest.Sandbox) string {
	r.Helper()
	addresses, sandboxes, err := cnitest.Reserved(filepath.Join(r.conf.IPAMDir, "felixlike"))
	r.must(err)
	at := slices.Index(sandboxes, s.ID)
	if at < 0 {
		r.Fatalf("sandbox %s has no address", s.ID)
	}
	return addresses[at] + "/32"
}

// reserved lists the addresses that are reserved.
func (r *runtime) reserved() []string {
	r.Helper()
	addresses, _, err := cnitest.Reserved(filepath.Join(r.conf.IPAMDir, "felixlike"))
	r.must(err)
	return addresses
}

// left lists everything that belongs to sandboxes on the node.
func (r *runtime) left() string {
	r.Helper()
	var links []string
	for _, l := range strings.Fields(r.links()) {
		if strings.HasPrefix(l, model.PodInterfacePrefix) {
			links = append(links, l)
		}
	}
	return fmt.Sprintf("interfaces %v, ports %v, addresses %v", links, r.ports(), r.reserved())
}

const nothing = "interfaces [], ports [], addresses []"
