package cni_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/internal/ethtool"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/cnitest"
	"github.com/felixlike/felixlike/test/eventually"
)

func TestAddCheckDel(t *testing.T) {
	r := newRuntime(t)
	a, b := r.sandbox("sandbox-a", "a"), r.sandbox("sandbox-b", "b")
	a.UID = "1234"
	got := r.ok("ADD", "1.1.0", a, nil)
	if want := []string{"10.9.0.2/32 via 10.9.0.1", "fd09::2/128 via fd09::1"}; !slices.Equal(got.Prefixes(), want) {
		t.Errorf("addresses %v, want %v", got.Prefixes(), want)
	}
	host := cni.HostInterface(model.PodID{Namespace: "x", Name: "a"})
	if len(got.Interfaces) != 2 || got.Interfaces[0].Name != host || got.Interfaces[0].Mac == "" || got.Interfaces[0].Sandbox != "" ||
		got.Interfaces[1].Name != "eth0" || got.Interfaces[1].Sandbox != a.NS.Path() || got.Interfaces[1].Mtu != 1450 {
		t.Errorf("interfaces in %s", got.Raw)
	}
	if len(got.Routes) != 2 || got.Routes[0].Dst.String() != "0.0.0.0/0" || got.Routes[1].Dst.String() != "::/0" {
		t.Errorf("routes in %s", got.Raw)
	}
	r.ok("ADD", "1.0.0", b, nil)
	if got := r.reach(a.NS, 2, b.NS, 3); got != "111111" {
		t.Errorf("tcp, udp, sctp over IPv4 and IPv6: %s", got)
	}
	again := r.ok("ADD", "1.1.0", a, nil)
	if again.Raw != got.Raw {
		t.Errorf("added again:\n%s\nfirst:\n%s", again.Raw, got.Raw)
	}
	r.ok("CHECK", "1.1.0", a, map[string]any{"prevResult": got.Result})
	for range 2 {
		r.ok("DEL", "1.1.0", a, nil)
	}
	r.fails("CHECK", a, map[string]any{"prevResult": got.Result}, 999, "not as it was added")
	if got := r.reserved(); !slices.Equal(got, []string{"10.9.0.3", "fd09::3"}) {
		t.Errorf("reserved %v", got)
	}
	r.ok("DEL", "1.1.0", b, nil)
	if got := r.left(); got != nothing {
		t.Error(got)
	}
}

// TestOffloadFollowsTheDatapath: after a change of the datapath, the next server sets the
// offloads of existing pods for it. It sets nothing if the recorded path leads to another
// namespace.
func TestOffloadFollowsTheDatapath(t *testing.T) {
	r := newRuntime(t)
	a, gone := r.sandbox("sandbox-a", "a"), r.sandbox("sandbox-b", "b")
	r.ok("ADD", "1.1.0", a, nil)
	r.ok("ADD", "1.1.0", gone, nil)
	if r.offloads(a) {
		t.Error("a pod on the userspace datapath leaves checksums to the switch")
	}
	// The path may lead to another namespace later.
	b := cni.HostInterface(model.PodID{Namespace: "x", Name: "b"})
	r.vsctl("set", "interface", b, "external_ids:felixlike-netns="+a.NS.Path())
	for _, c := range []struct {
		datapath string
		offloads bool
	}{{"system", true}, {"netdev", false}, {`""`, true}, {"netdev", false}} {
		r.stop(syscall.SIGTERM)
		// Open vSwitch here may have no kernel datapath: the record names the configured one.
		r.vsctl("--no-wait", "set", "bridge", "br-int", "datapath_type="+c.datapath)
		r.start()
		eventually.True(r, "the offload of pod a follows datapath "+c.datapath, func() bool { return r.offloads(a) == c.offloads })
	}
	if r.offloads(gone) {
		t.Error("a pod whose namespace is not known was changed")
	}
	r.stop(syscall.SIGTERM)
	log, err := os.ReadFile(filepath.Join(r.dir, "log"))
	if err != nil || !strings.Contains(string(log), "transmit offload of a pod may not fit the datapath") || !strings.Contains(string(log), "pod=x/b") {
		t.Errorf("the log does not name the pod that was left: %v\n%s", err, log)
	}
}

// offloads reports whether a sandbox's interface leaves checksums to its peer.
func (r *runtime) offloads(s cnitest.Sandbox) (on bool) {
	r.Helper()
	r.must(s.NS.Do(func() (err error) {
		on, err = ethtool.Get(s.Interface, ethtool.TxChecksum)
		return err
	}))
	return on
}

// TestVersions adds with every version of the specification, and checks the differences
// between their results.
func TestVersions(t *testing.T) {
	r := newRuntime(t)
	for version, want := range map[string]string{
		"0.3.0": `"version": "4"`, "0.3.1": `"version": "4"`, "0.4.0": `"version": "4"`, "1.0.0": `"cniVersion": "1.0.0"`, "1.1.0": `"mtu": 1450`,
	} {
		s := r.sandbox("sandbox-"+version, "pod-"+version)
		got := r.ok("ADD", version, s, nil)
		if !strings.Contains(got.Raw, want) || !strings.Contains(got.Raw, `"cniVersion": "`+version+`"`) {
			t.Errorf("version %s: no %s in %s", version, want, got.Raw)
		}
		r.ok("DEL", version, s, nil)
	}
	if got := r.call("VERSION", "1.1.0", cnitest.Sandbox{}, nil); !strings.Contains(got.Raw, `"0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"`) {
		t.Errorf("VERSION: %s", got.Raw)
	}
	if got := r.call("ADD", "0.2.0", r.sandbox("old", "old"), nil); !got.Failed || got.Code != 1 {
		t.Errorf("a version that is not spoken: %s", got.Raw)
	}
}

func TestAgentAway(t *testing.T) {
	r := newRuntime(t)
	s := r.sandbox("sandbox-a", "a")
	r.ok("ADD", "1.1.0", s, nil)
	r.stop(syscall.SIGTERM)
	if _, err := os.Stat(r.conf.Socket); !os.IsNotExist(err) {
		t.Errorf("the socket of a server that ended: %v", err)
	}
	for _, command := range []string{"ADD", "DEL"} {
		r.fails(command, s, nil, 11, r.conf.Socket)
	}
	r.fails("STATUS", cnitest.Sandbox{}, nil, 50, r.conf.Socket)
	r.start()
	r.ok("STATUS", "1.1.0", cnitest.Sandbox{}, nil)
	r.ok("DEL", "1.1.0", s, nil)
	if got := r.left(); got != nothing {
		t.Error(got)
	}
}

// TestPolicyThatDoesNotCome: nothing is left of a pod if its policy does not come into force
// in time, or if it is refused at once.
func TestPolicyThatDoesNotCome(t *testing.T) {
	r := newRuntime(t)
	s := r.sandbox("sandbox-a", "a")
	r.agent.set(t, "hold", "")
	r.fails("ADD", s, nil, 11, "policy of pod x/a is not in force: context deadline exceeded: it is held")
	if got := r.left(); got != nothing {
		t.Errorf("after a wait that was given up: %s", got)
	}
	r.agent.unset(t, "hold")
	r.agent.set(t, "refuse", "pod x/a is closed: a rule is quarantined")
	r.fails("ADD", s, nil, 11, "a rule is quarantined")
	if got := r.left(); got != nothing {
		t.Errorf("after a refusal: %s", got)
	}
	r.agent.unset(t, "refuse")
	r.ok("ADD", "1.1.0", s, nil)
	// A failed ADD leaves an existing attachment unchanged.
	before := r.left()
	r.agent.set(t, "refuse", "no")
	r.fails("ADD", s, nil, 11, "no")
	r.fails("CHECK", s, map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0"}}, 11, "no")
	if got := r.left(); got != before {
		t.Errorf("before %s, after %s", before, got)
	}
}

// TestPanic: a panic fails its own request only, and the server continues.
func TestPanic(t *testing.T) {
	r := newRuntime(t)
	s := r.sandbox("sandbox-a", "a")
	r.agent.set(t, "panic", "nobody expects it")
	r.fails("ADD", s, nil, 11, "panic: nobody expects it")
	r.agent.unset(t, "panic")
	r.ok("ADD", "1.1.0", s, nil)
	r.ok("DEL", "1.1.0", s, nil)
	if got := r.left(); got != nothing {
		t.Error(got)
	}
}

// TestPluginIsKilled: when the runtime kills the plugin, the agent undoes its ADD.
func TestPluginIsKilled(t *testing.T) {
	r := newRuntime(t)
	r.stop(syscall.SIGTERM)
	r.conf.Wait = time.Minute
	r.start()
	r.agent.set(t, "hold", "")
	s := r.sandbox("sandbox-a", "a")
	ctx, kill := context.WithCancel(r.ctx)
	defer kill()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = r.Call(ctx, "ADD", "1.1.0", s, nil) // it is killed
	}()
	eventually.True(r, "the pod is attached", func() bool { return r.left() != nothing })
	select {
	case <-ended:
		t.Error("the plugin ended by itself")
	default:
	}
	kill()
	<-ended
	eventually.True(r, "the pod is removed", func() bool { return r.left() == nothing })
}

func TestNodeNotKnown(t *testing.T) {
	r := newRuntime(t)
	s := r.sandbox("sandbox-a", "a")
	r.agent.unset(t, "node.json")
	r.fails("ADD", s, nil, 11, "this node is not known")
	r.setNode()
	r.fails("ADD", s, nil, 11, "has no podCIDR yet")
	r.setNode("10.9.0.0/30")
	r.ok("ADD", "1.1.0", s, nil)
	r.fails("ADD", r.sandbox("sandbox-b", "b"), nil, 11, "no IP addresses available")
	r.agent.unset(t, "node.json")
	r.ok("DEL", "1.1.0", s, nil)
	if got := r.left(); got != nothing {
		t.Error(got)
	}
}

// A request without a list is not one with an empty list, which removes all attachments.
func TestGCWithoutListIsRefused(t *testing.T) {
	if _, err := (&cni.Server{}).GC(t.Context(), &protocol.GCRequest{}); err == nil || !strings.Contains(err.Error(), "no list of valid attachments") {
		t.Errorf("error %v", err)
	}
}
