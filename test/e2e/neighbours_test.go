package e2e

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/cnitest"
	"github.com/felixlike/felixlike/test/lab"
)

// crowd is the number of pods of the node. All namespaces of a machine share the kernel's neighbour table, which has room for 1,024.
const crowd = 200

// TestCrowdOfOneNode: 200 pods of a node, each with all others, need no entries of the kernel's neighbour table, and lose no packet. A pod that sends
// to each address of the node's prefix leaves no entry either. Pods that an earlier version attached go on, with each other and with new ones.
func TestCrowdOfOneNode(t *testing.T) {
	l := newLab(t)
	objects := "{kind: Node, metadata: {name: node1}}\n"
	for i := range crowd {
		objects += fmt.Sprintf("---\n{kind: Pod, metadata: {namespace: x, name: p%d}, spec: {nodeName: node1, containers: [{name: c}]}}\n", i)
	}
	set(t, l, state(t, objects))
	node := l.Node("node1")
	for i, backend := range []string{config.NFTables, config.OpenFlow} {
		if i > 0 {
			// To hand 80,000 connections over takes longer than to open them again.
			if err := node.Namespace().Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }); err != nil {
				t.Fatal(err)
			}
			if out, errs, code := felixctl(t, "backend", "set", backend, "--socket", node.ControlSocket()); code != 0 {
				t.Fatal(out, errs)
			}
		}
		for _, f := range model.Families() {
			t.Run(backend+"/IPv"+f.String(), func(t *testing.T) {
				c := newCrowd(t, l, f)
				start := time.Now()
				for k := 1; k < crowd; k++ {
					c.round(k)
				}
				t.Logf("%d datagrams took %s", crowd*(crowd-1), time.Since(start))
				c.noEntries("after all of them have talked")
				c.sweep()
				c.noEntries("after a sweep of the prefix")
			})
		}
		if i > 0 {
			earlierPods(t, l)
		}
	}
}

// crowded has a socket in each pod.
type crowded struct {
	*testing.T
	l         *lab.Lab
	family    model.Family
	sockets   []*net.UDPConn
	addresses []netip.AddrPort
}

func newCrowd(t *testing.T, l *lab.Lab, f model.Family) *crowded {
	t.Helper()
	c := &crowded{T: t, l: l, family: f}
	for i := range crowd {
		p := l.Pod(pod(fmt.Sprint("p", i)))
		at := netip.AddrPortFrom(p.Address(f), 7777)
		err := p.Namespace().Do(func() error {
			s, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			c.sockets = append(c.sockets, s)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.sockets[i].Close() })
		c.addresses = append(c.addresses, at)
	}
	return c
}

// send sends a datagram of one pod to another, and the other has to get it, from the pod's address.
func (c *crowded) send(from, to int) {
	c.Helper()
	if _, err := c.sockets[from].WriteToUDPAddrPort(binary.BigEndian.AppendUint32(nil, uint32(from)), c.addresses[to]); err != nil {
		c.Fatalf("p%d to p%d: %v", from, to, err)
	}
}

func (c *crowded) gets(to, from int) {
	c.Helper()
	b := make([]byte, 16)
	if err := c.sockets[to].SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		c.Fatal(err)
	}
	n, source, err := c.sockets[to].ReadFromUDPAddrPort(b)
	if err != nil || n != 4 || binary.BigEndian.Uint32(b) != uint32(from) || netip.AddrPortFrom(source.Addr().Unmap(), source.Port()) != c.addresses[from] {
		c.Fatalf("p%d to p%d: %d bytes from %s, %v", from, to, n, source, err)
	}
}

// round has each pod send to the k-th pod after it.
func (c *crowded) round(k int) {
	c.Helper()
	for i := range crowd {
		c.send(i, (i+k)%crowd)
	}
	for i := range crowd {
		c.gets((i+k)%crowd, i)
	}
}

// sweep has a pod send to all addresses of the prefix from which pods have theirs, and those of no pod.
func (c *crowded) sweep() {
	c.Helper()
	last := c.addresses[0].Addr().AsSlice()
	for i := range 255 {
		last[len(last)-1] = byte(i)
		to, _ := netip.AddrFromSlice(last)
		// The kernel refuses broadcast addresses.
		_, _ = c.sockets[0].WriteToUDPAddrPort([]byte("?"), netip.AddrPortFrom(to, 7778))
	}
	c.send(0, 1)
	c.gets(1, 0)
}

// noEntries: pods have no other neighbour than the gateway, and the node has none that is not permanent.
func (c *crowded) noEntries(when string) {
	c.Helper()
	for i := range crowd {
		permanent, others := neighboursOf(c.T, c.l.Pod(pod(fmt.Sprint("p", i))).Namespace(), "eth0")
		if permanent != 2 || others != "" {
			c.Fatalf("%s: p%d has %d permanent neighbours, want the gateway's 2 addresses; and others: %s", when, i, permanent, others)
		}
	}
	if permanent, others := neighboursOf(c.T, c.l.Node("node1").Namespace(), model.GatewayPort); permanent != 2*crowd || others != "" {
		c.Fatalf("%s: the node has %d permanent neighbours, want %d; and others: %s", when, permanent, 2*crowd, others)
	}
}

// neighboursOf counts the permanent neighbours of an interface, and lists the others.
func neighboursOf(t *testing.T, ns *namespace.Namespace, iface string) (permanent int, others string) {
	t.Helper()
	err := ns.Do(func() error {
		link, err := netlink.LinkByName(iface)
		if err != nil {
			return err
		}
		for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			all, err := netlink.NeighList(link.Attrs().Index, f)
			if err != nil {
				return err
			}
			for _, n := range all {
				switch {
				case n.IP.IsMulticast():
				case n.State == netlink.NUD_PERMANENT:
					permanent++
				default:
					others += fmt.Sprintf("%s at %s; ", n.IP, n.HardwareAddr)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return permanent, others
}

// earlierPods gives the first two pods the form of an earlier version. They ask for the addresses of other pods, and get the gateway's MAC address.
func earlierPods(t *testing.T, l *lab.Lab) {
	t.Helper()
	for i := range 2 {
		p := l.Pod(pod(fmt.Sprint("p", i)))
		var addresses []netip.Prefix
		var gateways []netip.Addr
		for _, f := range model.Families() {
			prefix, _ := p.Address(f).Prefix(map[model.Family]int{model.IPv4: 24, model.IPv6: 120}[f])
			addresses = append(addresses, netip.PrefixFrom(p.Address(f), prefix.Bits()))
			gateways = append(gateways, prefix.Addr().Next())
		}
		if err := cnitest.ToEarlierForm(p.Namespace(), "eth0", addresses, gateways); err != nil {
			t.Fatal(err)
		}
	}
	node := l.Node("node1")
	for _, backend := range []string{config.OpenFlow, config.NFTables} {
		if out, errs, code := felixctl(t, "backend", "set", backend, "--socket", node.ControlSocket()); code != 0 {
			t.Fatal(out, errs)
		}
		for _, f := range model.Families() {
			t.Run("earlier pods/"+backend+"/IPv"+f.String(), func(t *testing.T) {
				c := newCrowd(t, l, f)
				for _, pair := range [][2]int{{0, 1}, {1, 0}, {0, 2}, {2, 0}, {3, 1}} {
					c.send(pair[0], pair[1])
					c.gets(pair[1], pair[0])
				}
			})
		}
	}
	_, others := neighboursOf(t, l.Pod(pod("p0")).Namespace(), "eth0")
	gateway := gatewayMAC(t, node).String()
	if n := strings.Count(others, " at "+gateway+";"); n < 4 || n != strings.Count(others, ";") {
		t.Errorf("neighbours of a pod of an earlier version: %s; want all at the gateway's MAC address %s", others, gateway)
	}
	for _, i := range []int{2, 3} {
		if permanent, others := neighboursOf(t, l.Pod(pod(fmt.Sprint("p", i))).Namespace(), "eth0"); permanent != 2 || others != "" {
			t.Errorf("p%d, a pod of this version, has %d permanent neighbours, and %s", i, permanent, others)
		}
	}
}
