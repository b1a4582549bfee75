package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/firewalls"
	"github.com/felixlike/felixlike/test/tablestest"
)

// world is a node with a peer and a pod, each in a namespace. The node and the peer answer on TCP ports 22, 80 and 6443 of both families.
type world struct {
	*testing.T
	at  map[string]tablestest.Namespace
	dir string
	// programs are the real firewalls, once a test has started one.
	programs *firewalls.Root
}

var addresses = map[string][2]string{"node": {"192.168.60.1", "fd60::1"}, "peer": {"192.168.60.2", "fd60::2"}, "pod": {"10.10.0.2", "fd10::2"}}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir(), at: map[string]tablestest.Namespace{}}
	for name := range addresses {
		w.at[name] = tablestest.NewNamespace(t, "nft")
		w.sh(name, "ip link set lo up")
	}
	for name, dev := range map[string]string{"peer": "up0", "pod": "pod0"} {
		w.sh("node", "ip link add %s type veth peer name eth0 netns %s; ip link set %s up", dev, w.at[name].Name, dev)
		w.sh(name, "ip link set eth0 up; ip addr add %s/24 dev eth0; ip addr add %s/64 dev eth0 nodad", addresses[name][0], addresses[name][1])
	}
	hold, err := conntrack.HoldTracking(w.at["node"].FD) // as each agent does when it starts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hold.Close() })
	w.sh("node", "ip addr add 192.168.60.1/24 dev up0; ip addr add fd60::1/64 dev up0 nodad; ip addr add 10.10.0.1/24 dev pod0; ip addr add fd10::1/64 dev pod0 nodad")
	for name := range addresses {
		for _, port := range []string{"22", "80", "6443"} {
			w.in(name, func() error {
				l, err := net.Listen("tcp", ":"+port)
				if err != nil {
					return err
				}
				t.Cleanup(func() { _ = l.Close() })
				go echo(l)
				return nil
			})
		}
	}
	for _, to := range []string{"node", "peer"} { // duplicate address detection is over
		from := map[string]string{"node": "peer", "peer": "node"}[to]
		eventually.True(t, from+" reaches "+to, func() bool { return w.reaches(from, to, "80") == "46" })
	}
	eventually.True(t, "the node reaches the pod", func() bool { return w.reaches("node", "pod", "80") == "46" })
	return w
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			one := make([]byte, 1)
			for {
				if _, err := c.Read(one); err != nil {
					return
				}
				if _, err := c.Write(one); err != nil {
					return
				}
			}
		}()
	}
}

func (w *world) sh(name, format string, args ...any) {
	w.Helper()
	w.at[name].Run(w, "sh", "-ec", fmt.Sprintf(format, args...))
}

func (w *world) in(name string, f func() error) {
	w.Helper()
	if err := namespace.In(w.at[name].FD, f); err != nil {
		w.Fatal(err)
	}
}

// dial connects from a namespace.
func (w *world) dial(from, at string, wait time.Duration) (conn net.Conn, err error) {
	err = namespace.In(w.at[from].FD, func() (err error) {
		conn, err = net.DialTimeout("tcp", at, wait)
		return err
	})
	return conn, err
}

// reaches returns the families in which new connections work.
func (w *world) reaches(from, to, port string) (families string) {
	for i, f := range []string{"4", "6"} {
		if c, err := w.dial(from, net.JoinHostPort(addresses[to][i], port), 300*time.Millisecond); err == nil {
			families += f
			_ = c.Close()
		}
	}
	return families
}

// session is a connection that answers.
func (w *world) session(from, to, port string) net.Conn {
	w.Helper()
	c, err := w.dial(from, net.JoinHostPort(addresses[to][0], port), 5*time.Second)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	w.alive(c)
	return c
}

func (w *world) alive(c net.Conn) {
	w.Helper()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	one := []byte{1}
	if _, err := c.Write(one); err != nil {
		w.Errorf("session of %s: %v", c.RemoteAddr(), err)
	} else if _, err := c.Read(one); err != nil {
		w.Errorf("session of %s: %v", c.RemoteAddr(), err)
	}
}

func failsafe() model.Failsafe {
	return model.Failsafe{In: []model.FailsafePort{tcp(22)}, Out: []model.FailsafePort{tcp(22)}}
}

func tcp(port uint16) model.FailsafePort {
	return model.FailsafePort{PortRange: model.PortRange{Protocol: model.TCP, First: port, Last: port}}
}

// agent is an agent of the world's node.
type agent struct {
	*moduletest.Fixture
	*world
}

// start starts an agent. Its test ends it.
func (w *world) start(t *testing.T, reach func(context.Context) error, within time.Duration, more ...func(*Options)) *agent {
	t.Helper()
	o := Options{Dir: w.dir, Failsafe: failsafe(), Reach: reach, Within: within, Log: slog.New(slog.DiscardHandler)}
	for _, set := range more {
		set(&o)
	}
	o.Table = backend.NewHosts(backend.Config{Node: "node1", NetNS: w.at["node"].FD}, o.Failsafe)
	v := &driver.View{}
	m := New(v, o)
	return &agent{moduletest.Start(t, driver.Config{Stages: []backend.Stage{drivertest.NewTable(t).Stage(), o.Table.Stage()}}, v, m.Module()), w}
}

func policyOf(t *testing.T, name, spec string) datastore.Event {
	t.Helper()
	p := &antrea.ClusterNetworkPolicy{}
	if err := yaml.UnmarshalStrict([]byte("spec: "+spec), p); err != nil {
		t.Fatal(err)
	}
	p.Name = name
	return datastore.AntreaSet{Object: p}
}

const (
	denyAll = "{priority: 9, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}], egress: [{action: Drop}]}"
	allow80 = "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Allow, ports: [{port: 80}], from: [{ipBlock: {cidr: 192.168.60.2/32}}]}], egress: [{action: Reject, ports: [{port: 6443}]}]}"
)

const (
	in  = "{priority: 9, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}]}"
	out = "{priority: 1, appliedTo: [{nodeSelector: {}}], egress: [{action: Drop, ports: [{port: 6443}]}]}"
)

// outTo drops what out does, and more.
func outTo(last int) string {
	return strings.Replace(out, "6443", fmt.Sprintf("6000, endPort: %d", last), 1)
}

// api connects to the API server, which is at the peer.
func (w *world) api(context.Context) error { return w.apiWithin(300 * time.Millisecond) }

func (w *world) apiWithin(timeout time.Duration) error {
	c, err := w.dial("node", "192.168.60.2:6443", timeout)
	if err == nil {
		_ = c.Close()
	}
	return err
}

func (a *agent) hosts(t *testing.T) *control.Hosts {
	t.Helper()
	return a.Status().Hosts
}

func (a *agent) awaits(t *testing.T, state string) {
	t.Helper()
	eventually.True(t, "state "+state, func() bool { h := a.hosts(t); return h != nil && h.State == state })
}

func (w *world) table() string {
	return w.at["node"].Run(w, "sh", "-c", "nft --stateless list table inet felixlike-hosts 2>/dev/null || true")
}

// TestDenyAll: sessions that were established go on, failsafe ports and the node's own pods stay open, and everything else is closed, in both
// directions and families. Order, Allow and Reject are those of pods. Foreign changes are repaired. Without a policy there is no table.
func TestDenyAll(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, nil, 0)
	a.Attach("pod", addresses["pod"][0], addresses["pod"][1])
	a.Begin(t)
	if table, h := w.table(), a.hosts(t); table != "" || h.State != control.HostsNone || strings.Join(h.FailsafeIn, " ")+strings.Join(h.FailsafeOut, " ") != "tcp/22tcp/22" {
		t.Errorf("without a policy: %+v\n%s", h, table)
	}
	in, out, local := w.session("peer", "node", "80"), w.session("node", "peer", "80"), w.session("node", "node", "80")
	expect := func(when string, want map[[3]string]string) {
		t.Helper()
		for way, families := range want {
			if got := w.reaches(way[0], way[1], way[2]); got != families {
				t.Errorf("%s: %v in families %q, want %q", when, way, got, families)
			}
		}
		w.alive(in)
		w.alive(out)
		w.alive(local)
	}
	a.Source.Send(true, policyOf(t, "all", denyAll))
	a.awaits(t, control.HostsConfirmed)
	closed := map[[3]string]string{
		{"peer", "node", "80"}: "", {"node", "peer", "80"}: "", {"peer", "node", "22"}: "46", {"node", "peer", "22"}: "46", {"peer", "node", "6443"}: "",
		{"node", "node", "80"}: "46", {"node", "pod", "80"}: "46", {"pod", "node", "80"}: "",
	}
	expect("deny all", closed)
	w.at["node"].Run(t, "nft", "flush", "ruleset")
	eventually.True(t, "repaired", func() bool { return w.reaches("peer", "node", "80") == "" })
	expect("after a flush of everything", closed)
	a.Source.Send(true, policyOf(t, "web", allow80))
	a.awaits(t, control.HostsConfirmed)
	expect("allow one", map[[3]string]string{{"peer", "node", "80"}: "4", {"peer", "node", "22"}: "46", {"peer", "node", "6443"}: ""})
	if _, err := w.dial("node", "192.168.60.2:6443", 5*time.Second); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("a rejected connection: %v", err)
	}
	h := a.hosts(t)
	if strings.Join(h.Policies, " ") != "clusternetworkpolicy.crd.antrea.io/all clusternetworkpolicy.crd.antrea.io/web" || strings.Join(h.FailsafeIn, " ") != "tcp/22" {
		t.Errorf("status %+v", h)
	}
	a.Source.Send(true, datastore.AntreaDeleted{ID: antrea.ID{Kind: antrea.KindClusterNetworkPolicy, Name: "web"}}, datastore.AntreaDeleted{ID: antrea.ID{Kind: antrea.KindClusterNetworkPolicy, Name: "all"}})
	a.Programmed(t)
	eventually.True(t, "no table", func() bool { return w.table() == "" })
	expect("without policies", map[[3]string]string{{"peer", "node", "6443"}: "46", {"node", "peer", "80"}: "46"})
}

// TestTranslated: a node's packet to itself is one that ends at the node after DNAT: a port of the node that leads to another host is judged, a cluster
// IP that leads to the node passes.
func TestTranslated(t *testing.T) {
	w := newWorld(t)
	w.at["node"].Feed(t, `table inet translated {
	chain output {
		type nat hook output priority -100
		ip daddr 192.168.60.1 tcp dport 30080 dnat ip to 192.168.60.2:80
		ip6 daddr fd60::1 tcp dport 30080 dnat ip6 to [fd60::2]:80
		ip daddr 10.96.0.1 tcp dport 80 dnat ip to 192.168.60.1:80
		ip6 daddr fd96::1 tcp dport 80 dnat ip6 to [fd60::1]:80
	}
}`, "nft", "-f", "-")
	w.sh("node", "ip route add default via 192.168.60.2; ip route add default via fd60::2")
	expect := func(when string, want map[string]bool) {
		t.Helper()
		for to, open := range want {
			wait := 500 * time.Millisecond
			if open {
				wait = eventually.Patience
			}
			c, err := w.dial("node", to, wait)
			if err == nil {
				_ = c.Close()
			}
			if (err == nil) != open {
				t.Errorf("%s: %s: %v", when, to, err)
			}
		}
	}
	expect("without a policy", map[string]bool{"192.168.60.1:30080": true, "[fd60::1]:30080": true, "10.96.0.1:80": true, "[fd96::1]:80": true})
	a := w.start(t, nil, 0)
	a.Begin(t, policyOf(t, "all", denyAll))
	a.awaits(t, control.HostsConfirmed)
	expect("deny all", map[string]bool{
		"192.168.60.1:30080": false, "[fd60::1]:30080": false, "10.96.0.1:80": true, "[fd96::1]:80": true,
		"192.168.60.1:80": true, "[fd60::1]:80": true, "127.0.0.1:80": true, "[::1]:80": true,
	})
}

// TestRestart: an agent that starts leaves a confirmed policy in force until it knows the objects; after a reboot (no table) it programs it
// before that. No packet passes in between.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	t.Run("first", func(t *testing.T) {
		a := w.start(t, nil, 0)
		a.Begin(t, policyOf(t, "all", denyAll))
		a.awaits(t, control.HostsConfirmed)
	})
	if got := w.reaches("peer", "node", "80"); got != "" {
		t.Errorf("without an agent: open in families %q", got)
	}
	before := w.table()
	t.Run("restarted", func(t *testing.T) {
		a := w.start(t, func(context.Context) error { return errors.New("asked although nothing is tried") }, 0)
		a.Begin(t, policyOf(t, "all", denyAll))
		a.awaits(t, control.HostsConfirmed)
		if now := w.table(); now != before {
			t.Errorf("other rules:\n%s\nbefore:\n%s", now, before)
		}
	})
	w.at["node"].Run(t, "nft", "flush", "ruleset")
	t.Run("rebooted", func(t *testing.T) {
		w.start(t, func(context.Context) error { return errors.New("no API server") }, 0)
		eventually.True(t, "closed before the objects are known", func() bool { return w.table() != "" })
		if w.reaches("peer", "node", "80") != "" || w.reaches("peer", "node", "22") != "46" {
			t.Error("not the confirmed policy")
		}
	})
}

// TestMembers: after a reboot, the confirmed policies have the members that their peers had last while the agent reached the API server.
func TestMembers(t *testing.T) {
	w := newWorld(t)
	node := func(address string) datastore.Event {
		e := drivertest.Node("node2", "10.10.1.0/24").(datastore.NodeSet)
		e.Node.Status.Addresses[0].Address = address
		return e
	}
	recorded := func(address string) bool {
		data, err := os.ReadFile(filepath.Join(w.dir, boot.RecordFile))
		return err == nil && strings.Contains(string(data), address+"/32")
	}
	t.Run("before", func(t *testing.T) {
		var away atomic.Bool
		var failures atomic.Int32
		a := w.start(t, func(context.Context) error {
			if away.Load() {
				failures.Add(1)
				return errors.New("away")
			}
			return nil
		}, time.Hour)
		a.Begin(t, node("192.168.60.9"), policyOf(t, "peers", "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop, from: [{nodeSelector: {}}]}]}"))
		a.awaits(t, control.HostsConfirmed)
		// The record is written after the state is known.
		eventually.True(t, "the first members are in force and recorded", func() bool { return w.reaches("peer", "node", "80") == "46" && recorded("192.168.60.9") })
		away.Store(true)
		a.Source.Send(true, node("192.168.60.2"))
		a.Programmed(t)
		eventually.True(t, "the other members are in force", func() bool { return w.reaches("peer", "node", "80") == "6" })
		eventually.True(t, "asked", func() bool { return failures.Load() > 0 })
		if recorded("192.168.60.2") {
			t.Error("recorded although the API server does not answer")
		}
		away.Store(false)
		eventually.True(t, "recorded", func() bool { return recorded("192.168.60.2") })
	})
	w.at["node"].Run(t, "nft", "flush", "ruleset")
	t.Run("rebooted", func(t *testing.T) {
		w.start(t, nil, 0)
		eventually.True(t, "the last members are in force", func() bool { return w.reaches("peer", "node", "80") == "6" })
	})
}

// TestWithdrawal: a policy with which the node cannot connect to the API server is withdrawn, by name, and the confirmed ones are in force. It is
// not tried again until it changes, also not by an agent that starts. An agent that ends during the trial decides it at its next start, before it
// knows any object.
func TestWithdrawal(t *testing.T) {
	w := newWorld(t)
	reach := w.api
	withdrawn := func(t *testing.T, a *agent) {
		t.Helper()
		a.awaits(t, control.HostsWithdrawn)
		eventually.True(t, "the API server is reached", func() bool { return reach(t.Context()) == nil })
		if got := w.reaches("peer", "node", "80"); got != "" {
			t.Errorf("the confirmed policy is not in force: open in families %q", got)
		}
		h := a.hosts(t)
		if strings.Join(h.Withdrawn, " ") != "clusternetworkpolicy.crd.antrea.io/out" || strings.Join(h.Confirmed, " ") != "clusternetworkpolicy.crd.antrea.io/in" || !strings.Contains(h.Reason, "could not reach the API server") {
			t.Errorf("status %+v", h)
		}
		var named []string
		notices, err := a.Driver.Notices(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range notices {
			if !strings.HasPrefix(n.Reason, "withdrawn from node node1: with it, this node could not") || !strings.Contains(n.Reason, ". In force there: the last confirmed policies. Tried again when it changes") {
				t.Errorf("notice %q", n.Reason)
			}
			named = append(named, n.Kind+" "+n.Object.String())
		}
		if strings.Join(named, ", ") != "HostPolicyWithdrawn clusternetworkpolicy.crd.antrea.io/out" {
			t.Errorf("notices %q", named)
		}
		if s := a.Status(); s.LastApply.Error != "" {
			t.Errorf("status %+v", s.LastApply)
		}
		eventually.True(t, "the policy is shown to be the reason", func() bool { r := w.record(); return r.Withdrawn != "" && !r.Unproven })
	}
	t.Run("live", func(t *testing.T) {
		a := w.start(t, reach, time.Second)
		a.Begin(t, policyOf(t, "in", in))
		a.awaits(t, control.HostsConfirmed)
		a.Source.Send(true, policyOf(t, "out", out))
		withdrawn(t, a)
	})
	t.Run("restarted", func(t *testing.T) {
		a := w.start(t, reach, time.Second)
		a.Begin(t, policyOf(t, "in", in), policyOf(t, "out", out))
		withdrawn(t, a)
	})
	t.Run("changed", func(t *testing.T) {
		a := w.start(t, reach, time.Hour)
		a.Begin(t, policyOf(t, "in", in), policyOf(t, "out", outTo(7000)))
		eventually.True(t, "cut off", func() bool { return reach(t.Context()) != nil })
		a.awaits(t, control.HostsUnconfirmed)
	})
	t.Run("in the trial", func(t *testing.T) {
		w.start(t, reach, time.Second) // no object ever comes
		eventually.True(t, "the API server is reached", func() bool { return reach(t.Context()) == nil })
		if w.reaches("peer", "node", "80") != "" {
			t.Error("the confirmed policy is not in force")
		}
	})
}

// TestNeverProgrammed: an agent that ended after it recorded a trial and before it programmed its policies has proved nothing by reaching the API
// server at its next start. The policies are tried once they are programmed.
func TestNeverProgrammed(t *testing.T) {
	w := newWorld(t)
	t.Run("confirmed", func(t *testing.T) {
		a := w.start(t, w.api, time.Second)
		a.Begin(t, policyOf(t, "in", in))
		a.awaits(t, control.HostsConfirmed)
	})
	before := w.at["node"].Run(t, "nft", "list", "table", "inet", "felixlike-hosts")
	t.Run("recorded", func(t *testing.T) {
		a := w.start(t, w.api, time.Hour)
		a.Begin(t, policyOf(t, "in", in), policyOf(t, "out", out))
		a.awaits(t, control.HostsUnconfirmed)
	})
	w.at["node"].Feed(t, "delete table inet felixlike-hosts\n"+before, "nft", "-f", "-")
	t.Run("started", func(t *testing.T) {
		var asked atomic.Int32
		a := w.start(t, func(ctx context.Context) error {
			defer asked.Add(1)
			return w.api(ctx)
		}, time.Second)
		eventually.True(t, "the agent reaches the API server before it knows any object", func() bool { return asked.Load() > 0 })
		a.Begin(t, policyOf(t, "in", in), policyOf(t, "out", out))
		a.awaits(t, control.HostsWithdrawn)
		eventually.True(t, "the API server is reached", func() bool { return w.api(t.Context()) == nil })
		if w.reaches("peer", "node", "80") != "" {
			t.Error("the confirmed policy is not in force")
		}
	})
}

// TestChangesInTrial: policies that follow a trial and cannot be programmed do not end it, and policies that change again and again do not put off
// their withdrawal.
func TestChangesInTrial(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, w.api, 4*time.Second)
	a.Begin(t, policyOf(t, "in", in))
	a.awaits(t, control.HostsConfirmed)
	last := 7000
	change := func() {
		last++
		a.Source.Send(true, policyOf(t, "out", outTo(last)))
	}
	change()
	eventually.True(t, "cut off", func() bool { return w.api(t.Context()) != nil })
	obstacle := filepath.Join(w.dir, ".record.json.next")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	change()
	eventually.True(t, "cannot be recorded", func() bool { return strings.Contains(fmt.Sprint(a.Status()), "cannot be recorded") })
	eventually.True(t, "the API server is reached", func() bool { return w.api(t.Context()) == nil })
	if w.reaches("peer", "node", "80") != "" {
		t.Error("the confirmed policy is not in force")
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	withdrawn := func() bool {
		data, err := os.ReadFile(filepath.Join(w.dir, boot.RecordFile))
		return err == nil && strings.Contains(string(data), `"withdrawn":`)
	}
	if withdrawn() {
		t.Error("recorded in spite of the obstacle")
	}
	eventually.True(t, "withdrawn while it changes", func() bool {
		change()
		a.Programmed(t)
		return withdrawn()
	})
}

// TestDamagedRecord: an agent that cannot read its record uses the one before. It withdraws what is in the table if it does not reach the API server,
// and after a reboot the confirmed policies are in force.
func TestDamagedRecord(t *testing.T) {
	w := newWorld(t)
	t.Run("confirmed", func(t *testing.T) {
		a := w.start(t, w.api, time.Second)
		a.Begin(t, policyOf(t, "in", in))
		a.awaits(t, control.HostsConfirmed)
	})
	t.Run("in the trial", func(t *testing.T) {
		a := w.start(t, w.api, time.Hour)
		a.Begin(t, policyOf(t, "in", in), policyOf(t, "out", out))
		eventually.True(t, "cut off", func() bool { return w.api(t.Context()) != nil })
	})
	damage := func() {
		t.Helper()
		if err := os.WriteFile(filepath.Join(w.dir, boot.RecordFile), []byte(`{"confirmed":{"in`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damage()
	t.Run("started", func(t *testing.T) {
		w.start(t, w.api, time.Second)
		eventually.True(t, "the API server is reached", func() bool { return w.api(t.Context()) == nil })
		if w.reaches("peer", "node", "80") != "" {
			t.Error("the confirmed policy is not in force")
		}
	})
	damage()
	w.at["node"].Run(t, "nft", "flush", "ruleset")
	t.Run("rebooted", func(t *testing.T) {
		a := w.start(t, w.api, time.Second)
		eventually.True(t, "the confirmed policy is in force", func() bool { return w.reaches("peer", "node", "80") == "" })
		a.Begin(t, policyOf(t, "in", in))
		eventually.True(t, "recorded again", func() bool {
			_, err := os.Stat(filepath.Join(w.dir, boot.RecordFile))
			return err == nil
		})
	})
}

// TestSlowDisk: while the record is being written, the agent answers.
func TestSlowDisk(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, nil, 0)
	a.Begin(t)
	pipe := filepath.Join(w.dir, ".record.json.next")
	w.sh("node", "mkfifo %s", pipe) // opening it waits for a reader
	release := func() {
		f, err := os.OpenFile(pipe, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Remove(pipe), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	a.Source.Send(true, policyOf(t, "all", denyAll))
	stacks := make([]byte, 4<<20)
	eventually.True(t, "the record is being written", func() bool {
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "hosts.(*Module).save(")
	})
	answered := make(chan string, 1)
	go func() { answered <- a.Status().Hosts.State }()
	select {
	case state := <-answered:
		if state != control.HostsUnconfirmed || w.table() != "" {
			t.Errorf("not recorded yet, and %s", state)
		}
		release()
	case <-time.After(eventually.Patience):
		release()
		t.Fatal("no answer")
	}
	a.awaits(t, control.HostsConfirmed)
}

// record returns the record as it is written, which is empty if it is not.
func (w *world) record() (r boot.Record) {
	data, err := os.ReadFile(filepath.Join(w.dir, boot.RecordFile))
	if err != nil || json.Unmarshal(data, &r) != nil {
		return boot.Record{}
	}
	return r
}

// outage is an API server that does not answer while it is away.
type outage struct {
	away     atomic.Bool
	failures atomic.Int32
	// then asks if it is not away.
	then func(context.Context) error
}

func (o *outage) reach(ctx context.Context) error {
	switch {
	case o.away.Load():
		o.failures.Add(1)
		return errors.New("away")
	case o.then != nil:
		return o.then(ctx)
	}
	return nil
}

// TestAPIServerAway: if the API server does not answer promptly without the policies either, they are tried again once it has answered for some
// time, also by an agent that starts. An outage just after a change does not keep its policies withdrawn.
func TestAPIServerAway(t *testing.T) {
	w := newWorld(t)
	api := &outage{}
	triedAgain := func(t *testing.T, a *agent) {
		t.Helper()
		api.away.Store(false)
		eventually.True(t, "tried again", func() bool { return w.reaches("peer", "node", "80") == "" })
		a.awaits(t, control.HostsConfirmed)
	}
	withdrawn := func(t *testing.T) *agent {
		t.Helper()
		api.away.Store(true)
		a := w.start(t, api.reach, time.Second)
		a.Begin(t, policyOf(t, "all", denyAll))
		a.awaits(t, control.HostsWithdrawn)
		eventually.True(t, "open: there is no confirmed policy", func() bool { return w.reaches("peer", "node", "80") == "46" })
		api.failures.Store(0)
		eventually.True(t, "asked without the policies", func() bool { return api.failures.Load() > 0 })
		return a
	}
	t.Run("live", func(t *testing.T) {
		a := withdrawn(t)
		triedAgain(t, a)
		a.Source.Send(true, datastore.AntreaDeleted{ID: antrea.ID{Kind: antrea.KindClusterNetworkPolicy, Name: "all"}})
		a.Programmed(t)
		eventually.True(t, "no table", func() bool { return w.table() == "" })
	})
	t.Run("ends", func(t *testing.T) { withdrawn(t) })
	t.Run("starts", func(t *testing.T) {
		a := w.start(t, api.reach, time.Second)
		a.Begin(t, policyOf(t, "all", denyAll))
		a.awaits(t, control.HostsWithdrawn)
		triedAgain(t, a)
	})
}

// TestOutageInTrial: a policy that cuts the node off, and whose trial an outage of the API server meets, is tried again once, is then shown to be the
// reason, and stays withdrawn. If an outage meets each trial, the policy is tried again three times.
func TestOutageInTrial(t *testing.T) {
	w := newWorld(t)
	api := &outage{then: w.api}
	withdrawn := func(a *agent, retries int) {
		t.Helper()
		api.away.Store(true)
		eventually.True(t, fmt.Sprintf("withdrawn after %d retries", retries), func() bool {
			r := w.record()
			return r.Withdrawn != "" && r.Unproven && r.Retries == retries
		})
		eventually.True(t, "out of the table", func() bool { return w.api(t.Context()) == nil })
		api.failures.Store(0)
		eventually.True(t, "asked without the policies", func() bool { return api.failures.Load() > 0 })
	}
	t.Run("once", func(t *testing.T) {
		a := w.start(t, api.reach, time.Second)
		a.Begin(t, policyOf(t, "in", in))
		a.awaits(t, control.HostsConfirmed)
		api.away.Store(true)
		a.Source.Send(true, policyOf(t, "out", out))
		withdrawn(a, 0)
		api.away.Store(false)
		eventually.True(t, "tried again, and cut off", func() bool { return w.api(t.Context()) != nil })
		eventually.True(t, "shown to be the reason", func() bool { r := w.record(); return r.Withdrawn != "" && !r.Unproven && r.Retries == 1 })
		a.awaits(t, control.HostsWithdrawn)
		for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(50 * time.Millisecond) {
			if err := w.apiWithin(5 * time.Second); err != nil {
				t.Fatalf("cut off once more: %v", err)
			}
		}
		if r := w.record(); r.Withdrawn == "" || r.Retries != 1 {
			t.Errorf("tried once more: %+v", r)
		}
	})
	t.Run("each time", func(t *testing.T) {
		a := w.start(t, api.reach, 300*time.Millisecond)
		a.Begin(t, policyOf(t, "in", in), policyOf(t, "out", outTo(7000)))
		withdrawn(a, 0)
		for retries := 1; retries <= boot.MaxRetries; retries++ {
			api.away.Store(false)
			eventually.True(t, "tried again, and cut off", func() bool { return w.api(t.Context()) != nil })
			withdrawn(a, retries)
		}
		if r := w.record(); r.WillRetry() {
			t.Errorf("tried again after %d retries", r.Retries)
		}
		api.away.Store(false)
		for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(50 * time.Millisecond) {
			if err := w.apiWithin(5 * time.Second); err != nil {
				t.Fatalf("cut off once more: %v", err)
			}
		}
		if r := w.record(); r.Withdrawn == "" || r.Retries != boot.MaxRetries {
			t.Errorf("tried once more: %+v", r)
		}
	})
}

// TestOff: the file turns everything off, also while the agent runs, and the agent puts nothing back. When it goes, the policies are in force.
func TestOff(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, nil, 0)
	a.Begin(t, policyOf(t, "all", denyAll))
	a.awaits(t, control.HostsConfirmed)
	marker := filepath.Join(w.dir, boot.OffFile)
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := backend.RemoveHosts(t.Context(), w.at["node"].FD); err != nil { // the agent may have been faster
		t.Error(err)
	}
	a.awaits(t, control.HostsOff)
	a.Source.Send(true, policyOf(t, "web", allow80))
	a.Programmed(t)
	eventually.True(t, "off", func() bool { return w.table() == "" && w.reaches("peer", "node", "80") == "46" })
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	a.awaits(t, control.HostsConfirmed)
	eventually.True(t, "on", func() bool { return w.reaches("peer", "node", "80") == "4" })
	// The file comes and goes between two looks at it, and the stage saw it.
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.Source.Send(true, policyOf(t, "all", strings.Replace(denyAll, "9", "8", 1)))
	a.Programmed(t)
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "on again", func() bool { return w.reaches("peer", "node", "80") == "4" })
}

// TestOffBeforeObjects: what felixctl hosts off removes before the agent knows any object comes back with hosts on, also if the file came and went
// between two looks at it.
func TestOffBeforeObjects(t *testing.T) {
	w := newWorld(t)
	t.Run("confirmed", func(t *testing.T) {
		a := w.start(t, nil, 0)
		a.Begin(t, policyOf(t, "all", denyAll))
		a.awaits(t, control.HostsConfirmed)
	})
	a := w.start(t, nil, 0)
	eventually.True(t, "the agent runs", func() bool { return a.Status().Node == "node1" })
	if did, err := backend.RemoveHosts(t.Context(), w.at["node"].FD); err != nil || !did {
		t.Fatal(did, err)
	}
	eventually.True(t, "the confirmed policy is in force", func() bool { return w.reaches("peer", "node", "80") == "" })
}

// TestNotInTable: an answer of the API server while there is no table, as after felixctl hosts off, confirms nothing.
func TestNotInTable(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	o := Options{Dir: t.TempDir(), Table: backend.NewHosts(backend.Config{Node: "node1", NetNS: ns.FD}, failsafe()), Log: slog.New(slog.DiscardHandler)}
	m := New(&driver.View{}, o)
	p := &model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "all"}}
	all := &model.HostPolicies{Ingress: model.Applied{Admin: []model.PolicyID{p.ID}}, Policies: []*model.Policy{p}}
	if err := m.attempt(all, all); err != nil {
		t.Fatal(err)
	}
	m.programmed(all, "")
	if now, _ := m.running(); m.confirm(t.Context(), now) || m.state().Confirmed != nil {
		t.Error("confirmed without a table")
	}
}

// TestUnwritable: policies that cannot be recorded are not programmed, since nothing could withdraw them after a restart.
func TestUnwritable(t *testing.T) {
	w := newWorld(t)
	w.dir = "/proc/flx-none"
	a := w.start(t, nil, 0)
	a.AttachmentsSynced()
	a.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), policyOf(t, "all", denyAll))
	eventually.True(t, "named", func() bool { return strings.Contains(fmt.Sprint(a.Status()), "cannot be recorded") })
	if w.table() != "" {
		t.Error("programmed")
	}
}
