package e2e

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

const denyHosts = `
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: hosts}, spec: {priority: 1,
  appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}], egress: [{action: Drop}]}}
`

// TestHostPolicies: under each backend, a policy denies all packets to and from the nodes. Sessions of nodes that are established live,
// ssh works, probes and pods' packets through the tunnel do, and nothing else. While the agent is killed and starts, no packet passes. hosts off opens the node, hosts on closes it.
func TestHostPolicies(t *testing.T) {
	t.Parallel()
	inEachBackend(t, func(t *testing.T, l *lab.Lab, _ string) {
		set(t, l, state(t, threeNodes))
		own := l.Node("node1")
		for _, port := range []string{"22", "7778"} {
			echoIn(t, own.Namespace(), port)
		}
		connect := func(from string, addr netip.Addr, port uint16, timeout time.Duration) (*os.File, error) {
			return traffic.Connect(l.Node(from).Namespace(), netip.Addr{}, netip.AddrPortFrom(addr, port), timeout)
		}
		works := func(from string, addr netip.Addr, port uint16, timeout time.Duration) error {
			conn, err := connect(from, addr, port, timeout)
			if err != nil {
				return err
			}
			return errors.Join(traffic.Echo(conn, patience), conn.Close())
		}
		old := map[model.Family]*os.File{}
		for _, f := range model.Families() {
			eventually.True(t, "node2 reaches node1 without policy", func() (ok bool) {
				conn, err := connect("node2", own.Address(f), 7778, time.Second)
				old[f] = conn
				return err == nil
			})
			defer old[f].Close()
		}
		set(t, l, state(t, threeNodes, denyHosts))
		for _, node := range []string{"node1", "node2"} {
			eventually.True(t, node+" confirms the policy", func() bool {
				s, err := l.Node(node).Status(t.Context())
				return err == nil && s.Hosts != nil && s.Hosts.State == control.HostsConfirmed
			})
		}
		for _, f := range model.Families() {
			if err := traffic.Echo(old[f], patience); err != nil {
				t.Errorf("an IPv%s session from before: %v", f, err)
			}
			if err := works("node2", own.Address(f), 22, time.Second); err == nil {
				t.Errorf("node2 may not begin a connection to port 22 over IPv%s: egress is denied there", f)
			}
			if err := works("node1", own.Address(f), 7778, patience); err != nil {
				t.Errorf("node1 to itself over IPv%s: %v", f, err)
			}
			if err := works("node1", l.Pod(pod("a")).Address(f), 80, patience); err != nil {
				t.Errorf("a probe over IPv%s: %v", f, err)
			}
			if conn, err := traffic.Connect(l.Pod(pod("a")).Namespace(), netip.Addr{}, netip.AddrPortFrom(l.Pod(pod("c")).Address(f), 80), patience); err != nil {
				t.Errorf("pods of two nodes over IPv%s: %v", f, err)
			} else {
				_ = conn.Close()
			}
			if err := works("node2", own.Address(f), 7778, time.Second); err == nil {
				t.Errorf("node2 to node1 over IPv%s", f)
			}
		}
		own2 := follow(t, l.Node("node2"))
		eventually.True(t, "a packet of a node that its own policy denies is named", func() bool {
			_ = works("node2", own.Address(model.IPv4), 22, 200*time.Millisecond)
			return slices.ContainsFunc(own2.drops(), func(d control.Drop) bool {
				return d.From.Node == "node2" && d.To.Node == "node1" && d.Port == 22 && d.Policy == "clusternetworkpolicy.crd.antrea.io/hosts" && d.Rule == "egress[0]" && d.Direction == "egress"
			})
		})
		own2.end()
		outside := func(port uint16) error { // node3 has no egress policy after this
			return works("node3", own.Address(model.IPv4), port, time.Second)
		}
		set(t, l, state(t, threeNodes, `
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: hosts}, spec: {priority: 1,
  appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}]}}
`))
		eventually.True(t, "ssh from another node", func() bool { return outside(22) == nil })
		// Commands know the table, and denied packets have names.
		noDifference(t, own)
		f := follow(t, own)
		eventually.True(t, "a denied packet is named", func() bool {
			_ = outside(7778)
			return slices.ContainsFunc(f.drops(), func(d control.Drop) bool {
				return d.From.Node == "node3" && d.To.Node == "node1" && d.Port == 7778 && d.Policy == "clusternetworkpolicy.crd.antrea.io/hosts" && d.Rule == "ingress[0]" && d.Direction == "ingress"
			})
		})
		f.end()
		hostsCommand := func(command, want string) {
			t.Helper()
			if out, code := onNode(t, own, "hosts", command, "--state-dir", own.StateDir()); code != 0 || !strings.Contains(out, want) {
				t.Errorf("felixctl hosts %s: exit code %d: %s", command, code, out)
			}
		}
		hostsState := func(want string) bool {
			s, err := own.Status(t.Context())
			return err == nil && s.Hosts != nil && s.Hosts.State == want
		}
		eventually.True(t, "confirmed", func() bool { return hostsState(control.HostsConfirmed) })
		hostsCommand("off", "no longer in force on this node: clusternetworkpolicy.crd.antrea.io/hosts")
		eventually.True(t, "open while the policies are off", func() bool { return hostsState(control.HostsOff) && outside(7778) == nil })
		hostsCommand("on", "within seconds")
		eventually.True(t, "closed again", func() bool { return hostsState(control.HostsConfirmed) && outside(7778) != nil && outside(7778) != nil })
		var passed atomic.Int32
		done, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-done:
					return
				default:
				}
				if conn, err := connect("node3", own.Address(model.IPv4), 7778, 200*time.Millisecond); err == nil {
					passed.Add(1)
					_ = conn.Close()
				}
			}
		}()
		for range 3 {
			if err := l.RestartAgent(t.Context(), "node1"); err != nil {
				t.Error(err)
			}
		}
		close(done)
		<-ended
		if n := passed.Load(); n > 0 {
			t.Errorf("%d denied connections while the agent was killed and started", n)
		}
		set(t, l, state(t, threeNodes))
		eventually.True(t, "open without policy", func() bool { return outside(7778) == nil })
	})
}
