package cni_test

import (
	"bytes"
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
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/felixlike/felixlike/lab/namespace"
	"github.com/felixlike/felixlike/model"
)

// runtime calls the plugin as a container runtime does, on a node whose CNI server
// is a process of its own.
type runtime struct {
	*node
	agent fakeAgent
	dir   string
	conf  serverConfig
	cmd   *exec.Cmd
	ended chan error
}

// sandbox is what a container runtime knows of a pod's sandbox.
type sandbox struct {
	id, pod, uid, iface string
	ns                  *namespace.Namespace
}

// reply is what the plugin has printed.
type reply struct {
	types100.Result
	// Code, Msg and Details are those of an error.
	Code         uint
	Msg, Details string
	raw          string
	failed       bool
}

func newRuntime(t *testing.T) *runtime {
	t.Helper()
	r := &runtime{node: newNode(t), dir: t.TempDir()}
	r.agent = fakeAgent(r.dir)
	r.conf = serverConfig{
		Socket: filepath.Join(r.dir, "run", "cni.sock"), OVSDB: r.ovs.DBSocket(),
		PluginDir: plugins, IPAMDir: filepath.Join(r.dir, "networks"), Wait: shortWait,
	}
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
	r.until("the server serves", func() bool {
		return !strings.Contains(r.call("STATUS", "1.1.0", sandbox{}, nil).raw, "while dialing")
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

func (r *runtime) until(what string, ready func() bool) {
	r.Helper()
	for end := time.Now().Add(10 * time.Second); !ready(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("not within 10 s: %s", what)
		}
	}
}

func (r *runtime) sandbox(id, pod string) sandbox {
	r.Helper()
	return sandbox{id: id, pod: pod, iface: "eth0", ns: space(r.T, id)}
}

// command is the plugin for a sandbox. Extra goes into the configuration.
func (r *runtime) command(command, version string, s sandbox, extra map[string]any) *exec.Cmd {
	r.Helper()
	conf := map[string]any{"cniVersion": version, "name": "felixlike", "type": "felixlike-cni", "socket": r.conf.Socket}
	for k, v := range extra {
		conf[k] = v
	}
	data, err := json.Marshal(conf)
	r.must(err)
	cmd := exec.Command(filepath.Join(plugins, "felixlike-cni"))
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_PATH=" + plugins}
	if s.id != "" {
		args := "IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=" + s.pod + ";K8S_POD_UID=" + s.uid + ";OTHER=1"
		if s.pod == "" {
			args = "IgnoreUnknown=1"
		}
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID="+s.id, "CNI_IFNAME="+s.iface, "CNI_ARGS="+args)
	}
	if s.ns != nil {
		cmd.Env = append(cmd.Env, "CNI_NETNS="+s.ns.Path())
	}
	cmd.Stdin = bytes.NewReader(data)
	return cmd
}

// call runs the plugin.
func (r *runtime) call(command, version string, s sandbox, extra map[string]any) reply {
	r.Helper()
	cmd := r.command(command, version, s, extra)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	got := reply{raw: out.String() + errOut.String(), failed: err != nil}
	if text := out.Bytes(); len(text) > 0 {
		if err := json.Unmarshal(text, &got); err != nil && (got.failed || version >= "1.0.0") {
			r.Fatalf("%s: %v: %s", command, err, got.raw)
		}
	}
	return got
}

// ok is call for what has to succeed.
func (r *runtime) ok(command, version string, s sandbox, extra map[string]any) reply {
	r.Helper()
	got := r.call(command, version, s, extra)
	if got.failed {
		r.Fatalf("%s of %s: %s", command, s.id, got.raw)
	}
	return got
}

// fails is call for what has to fail, with a code and a text.
func (r *runtime) fails(command string, s sandbox, extra map[string]any, code uint, text string) {
	r.Helper()
	got := r.call(command, "1.1.0", s, extra)
	if !got.failed || got.Code != code || !strings.Contains(got.Msg+got.Details, text) {
		r.Errorf("%s of %s: want code %d and %q: %s", command, s.id, code, text, got.raw)
	}
}

// address returns the IPv4 address that a sandbox has, as ip wants it.
func (r *runtime) address(s sandbox) string {
	r.Helper()
	for _, a := range r.reserved() {
		data, err := os.ReadFile(filepath.Join(r.conf.IPAMDir, "felixlike", a))
		r.must(err)
		if strings.HasPrefix(string(data), s.id+"\r\n") && !strings.Contains(a, ":") {
			return a + "/24"
		}
	}
	r.Fatalf("sandbox %s has no address", s.id)
	return ""
}

// reserved lists the addresses that are reserved.
func (r *runtime) reserved() []string {
	r.Helper()
	entries, err := os.ReadDir(filepath.Join(r.conf.IPAMDir, "felixlike"))
	if err != nil && !os.IsNotExist(err) {
		r.Fatal(err)
	}
	all := []string{}
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err == nil {
			all = append(all, e.Name())
		}
	}
	slices.Sort(all)
	return all
}

// left describes everything that sandboxes have on the node.
func (r *runtime) left() string {
	r.Helper()
	var links []string
	for _, l := range strings.Fields(r.links()) {
		if strings.HasPrefix(l, model.PodInterfacePrefix) {
			links = append(links, l)
		}
	}
	return fmt.Sprintf("interfaces %v, ports %v, addresses %v", links, strings.Fields(r.vsctl("list-ports", "br-int")), r.reserved())
}

const nothing = "interfaces [], ports [], addresses []"
