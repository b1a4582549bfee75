package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/test/lab"
)

// manifest is the file with the policy of x/mute. No policy of churn selects that pod.
func (c *cluster) manifest() string {
	return filepath.Join(c.lab.Manifests(), "networkpolicy_x_mute.yaml")
}

// hideManifest replaces the file by a link to itself, so that it cannot be read.
func (c *cluster) hideManifest() error {
	temp := filepath.Join(c.lab.Manifests(), ".loop")
	if err := os.Symlink(filepath.Base(c.manifest()), temp); err != nil {
		return err
	}
	return os.Rename(temp, c.manifest())
}

// restoreManifest writes the file as it was.
func (c *cluster) restoreManifest() error { return replace(c.manifest(), c.saved) }

// liar is the file with the lies of a node.
func (c *cluster) liar() string { return filepath.Join(c.lab.Manifests(), "node__liar.yaml") }

// lie writes a Node that claims the pod prefixes of node2, and these addresses.
func lie(addresses ...string) func(context.Context, *cluster) error {
	const node = `{apiVersion: v1, kind: Node, metadata: {name: liar, creationTimestamp: '2026-01-01T00:00:00Z'}, spec: {podCIDR: 10.10.1.0/24, podCIDRs: [10.10.1.0/24, 'fd00:10::a0a:100/120']},
  status: {addresses: [{type: InternalIP, address: %q}, {type: InternalIP, address: %q}]}}
`
	return func(_ context.Context, c *cluster) error {
		return replace(c.liar(), fmt.Sprintf(node, addresses[0], addresses[1]))
	}
}

// advertise has node2 say that it is a router (RFC 4861, 4.2: hop limit 64, no flags, lifetime 1,800 s, no other times).
func (c *cluster) advertise() error {
	return c.lab.Node("node2").Namespace().Do(func() (err error) {
		conn, err := net.ListenPacket("ip6:ipv6-icmp", "::")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, conn.Close()) }()
		p := ipv6.NewPacketConn(conn)
		if err := p.SetMulticastHopLimit(255); err != nil {
			return err
		}
		m := icmp.Message{Type: ipv6.ICMPTypeRouterAdvertisement, Body: &icmp.RawBody{Data: []byte{64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0}}}
		data, err := m.Marshal(nil)
		if err != nil {
			return err
		}
		_, err = p.WriteTo(data, nil, &net.IPAddr{IP: net.IPv6linklocalallnodes, Zone: "br-phy"})
		return err
	})
}

// remake deletes a pod and makes it anew, as a runtime does.
func (c *cluster) remake(pod string) error {
	s := c.lab.State()
	without := s
	without.Pods = nil
	for _, p := range s.Pods {
		if p.Name != pod {
			without.Pods = append(without.Pods, p)
		}
	}
	if err := c.lab.SetState(c.t.Context(), without); err != nil {
		return err
	}
	return c.lab.SetState(c.t.Context(), s)
}

// startSecond starts another agent on the node, with directories of its own.
func (c *cluster) startSecond() error {
	dir, err := os.MkdirTemp(filepath.Dir(c.node.LogFile()), "second")
	if err != nil {
		return err
	}
	c.second, err = c.node.StartSecondAgent(dir)
	return err
}

// endSecond fails if the second agent was not refused.
func (c *cluster) endSecond() error {
	if c.second == nil {
		return nil
	}
	refused := within(c.t.Context(), wait, func() bool { return c.second.PID() == 0 })
	if !refused {
		return errors.Join(errors.New("the second agent was not refused"), c.second.Kill())
	}
	return nil
}

// changeBackend changes the backend of the node, and waits until it is in force.
func (c *cluster) changeBackend(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return control.NewClient(c.node.ControlSocket()).SetBackend(ctx, to)
}

// killContainer kills the supervisor, and both daemons, as the kernel does with the processes of a container
// whose first process has ended.
func (c *cluster) killContainer() error {
	err := c.ovs.End(syscall.SIGKILL)
	for _, daemon := range []string{"ovs-vswitchd", "ovsdb-server"} {
		err = errors.Join(err, signal(daemon, syscall.SIGKILL)(c.t.Context(), c))
	}
	return err
}

// killAgents kills the agent again and again, at any moment of its start, and starts it at once.
func (c *cluster) killAgents(ctx context.Context, times int) error {
	const longest = time.Second
	for range times {
		if err := errors.Join(c.node.KillAgent(), c.node.StartAgent()); err != nil {
			return err
		}
		pause(ctx, time.Duration(c.random.Int64N(int64(longest))))
	}
	return nil
}

// killSwitch kills each ovs-vswitchd that answers.
func (c *cluster) killSwitch(ctx context.Context, times int) error {
	for range times {
		if err := signal("ovs-vswitchd", syscall.SIGKILL)(ctx, c); err != nil {
			return err
		}
		if !within(ctx, wait, func() bool { return c.ovs.Serves(ctx) }) {
			return errors.New("the supervisor started no other ovs-vswitchd")
		}
	}
	return nil
}

// limitDescriptors lets the agent open no file, or as many as the test.
func (c *cluster) limitDescriptors(on bool) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if on {
		limit.Cur = 0
	}
	return unix.Prlimit(c.node.AgentPID(), unix.RLIMIT_NOFILE, &limit, nil)
}

// takeMemory lets the agent map no more memory. The runtime of Go ends the process when it needs more.
func (c *cluster) takeMemory() error {
	limit := unix.Rlimit{Cur: 0, Max: unix.RLIM_INFINITY}
	return unix.Prlimit(c.node.AgentPID(), unix.RLIMIT_AS, &limit, nil)
}

// giveMemory ends that. It starts the agent again if it has ended, as kubelet does.
func (c *cluster) giveMemory() error {
	if pid := c.node.AgentPID(); pid > 0 {
		limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
		return unix.Prlimit(pid, unix.RLIMIT_AS, &limit, nil)
	}
	return c.node.StartAgent()
}

// stateDir is the directory with the agent's copies of manifests.
func (c *cluster) stateDir() string { return filepath.Join(filepath.Dir(c.node.LogFile()), "state") }

// fillState covers the directory with a full file system.
func (c *cluster) fillState() error {
	if err := unix.Mount("none", c.stateDir(), "tmpfs", 0, "size=4k"); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.stateDir(), "full"), make([]byte, 4096), 0o600)
}

func (c *cluster) emptyState() error { return unix.Unmount(c.stateDir(), unix.MNT_DETACH) }

// loseNotifications deletes a route among so many changes of other routes that the kernel drops notifications: the agent
// is stopped meanwhile.
func (c *cluster) loseNotifications() error {
	var batch strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&batch, "route add 198.18.%[1]d.%[2]d/32 dev lo table 7777\nroute del 198.18.%[1]d.%[2]d/32 dev lo table 7777\n", i/250, 1+i%250)
	}
	file := filepath.Join(c.t.TempDir(), "routes")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		return err
	}
	if err := signalAgent(syscall.SIGSTOP)(c.t.Context(), c); err != nil {
		return err
	}
	err := c.shell("ip -batch " + file + "; ip route del $(ip route show proto 208 table main | grep via | head -n 1 | cut -d ' ' -f 1); ip -batch " + file)
	return errors.Join(err, signalAgent(syscall.SIGCONT)(c.t.Context(), c))
}

// fillDatabase puts Open vSwitch's database on a full file system, and starts ovsdb-server anew, so that it uses that
// file. A transaction that writes must fail.
func (c *cluster) fillDatabase(ctx context.Context) error {
	database := filepath.Join(c.node.OVSDir(), "conf.db")
	content, err := os.ReadFile(database)
	if err != nil {
		return err
	}
	page := os.Getpagesize()
	pages := (len(content) + page - 1) / page
	if err := os.Mkdir(fullDisk(c.node), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := unix.Mount("none", fullDisk(c.node), "tmpfs", 0, fmt.Sprintf("size=%d", pages*page)); err != nil {
		return err
	}
	file := filepath.Join(fullDisk(c.node), "conf.db")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	if err := unix.Mount(file, database, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := signal("ovsdb-server", syscall.SIGKILL)(ctx, c); err != nil {
		return err
	}
	if !within(ctx, wait, func() bool { return c.shell(vsctl+"show") == nil }) {
		return errors.New("no ovsdb-server answers")
	}
	// More than the last page has room for.
	if err := c.shell(vsctl + "set bridge br-int external_ids:full=" + strings.Repeat("x", page)); err == nil {
		return errors.New("the disk is not full: a transaction was written")
	}
	return nil
}

// emptyDatabase has ovsdb-server use the database of before.
func (c *cluster) emptyDatabase(ctx context.Context) error {
	err := errors.Join(unix.Unmount(filepath.Join(c.node.OVSDir(), "conf.db"), unix.MNT_DETACH), unix.Unmount(fullDisk(c.node), unix.MNT_DETACH))
	return errors.Join(err, signal("ovsdb-server", syscall.SIGKILL)(ctx, c))
}

func fullDisk(n *lab.Node) string { return filepath.Join(n.OVSDir(), "full") }
