package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/ethtool"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/multitenant"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/bench/worker"
)

// Paths of packets without an agent. Their results are of no point.
const (
	// NoBackend is the floor: two pods without an agent, joined as Packets.Floor describes.
	NoBackend = "none"
	// Switched has two pods on an Open vSwitch of the run's datapath that switches by address.
	Switched = "switched"
	// Multitenant has two pods of one tenant on an Open vSwitch of the run's datapath, with the flows of ovsfwd/multitenant: isolation
	// without connection tracking.
	Multitenant = "multitenant"
	// Routed has two pods on veth pairs that the kernel routes. Chains of nftables accept
	// established connections and, by a rule, new ones: packets take this way through a
	// node whose agent programs netfilter and uses no switch.
	Routed = "routed"
)

// Names of the interfaces of a node that lead to the pods, in the order of labAddress.
var nodeEnds = [2]string{"client", "server"}

// path is a path of packets between two pods without an agent.
type path struct {
	wire *wire
	// Nothing in these namespaces outlives this process. The node is nil on the floor.
	client, server, node *namespace.Namespace
	ovs                  *ovs
}

// startPaths starts the paths without an agent.
func startPaths(ctx context.Context, datapath string) (map[string]*path, error) {
	all := map[string]*path{}
	for _, name := range withoutAgent() {
		p := &path{}
		all[name] = p
		if err := p.start(ctx, name, datapath); err != nil {
			return all, fmt.Errorf("path without an agent, %s: %w", name, err)
		}
	}
	return all, nil
}

func (p *path) start(ctx context.Context, name, datapath string) (err error) {
	for _, ns := range []**namespace.Namespace{&p.client, &p.server, &p.node} {
		if *ns, err = namespace.Anonymous(); err != nil {
			return err
		}
	}
	pods := []*namespace.Namespace{p.client, p.server}
	if name == NoBackend {
		err = join(p.client, p.server, podInterface)
	} else {
		err = errors.Join(join(p.client, p.node, nodeEnds[0]), join(p.server, p.node, nodeEnds[1]))
	}
	if err != nil {
		return err
	}
	for i, ns := range pods {
		if err := ns.Do(func() error { return openEnd(labAddress(byte(i)), name, datapath) }); err != nil {
			return err
		}
	}
	vswitchd := 0
	switch name {
	case Switched:
		if p.ovs, err = startOVS(ctx, p.node, datapath, "fail_mode=standalone"); err != nil {
			return err
		}
		_, vswitchd = p.ovs.daemons.PIDs()
		err = p.run(ctx, fmt.Sprintf("ip link set %s up; ip link set %s up; ovs-vsctl --db=unix:%s add-port %s %[1]s -- add-port %[4]s %[2]s",
			nodeEnds[0], nodeEnds[1], p.ovs.daemons.DBSocket(), worker.Bridge))
	case Multitenant:
		if p.ovs, err = startOVS(ctx, p.node, datapath, "fail_mode=secure", "protocols=[OpenFlow13,OpenFlow15]"); err != nil {
			return err
		}
		_, vswitchd = p.ovs.daemons.PIDs()
		err = p.isolate(ctx)
	case Routed:
		err = p.run(ctx, routedScript())
	}
	if err != nil {
		return err
	}
	p.wire, err = newWire(p.client, p.server, labAddress(1), vswitchd)
	return err
}

// isolate connects the pods by the flows of ovsfwd/multitenant. Both are of one tenant. The node has neither a gateway port nor a tunnel.
func (p *path) isolate(ctx context.Context) error {
	const firstPort = 10
	tenant := multitenant.Tenant{Number: 1}
	flows := multitenant.Tenants(tenant)
	script := ""
	for i, ns := range []*namespace.Namespace{p.client, p.server} {
		pod := &model.Attachment{OFPort: uint32(firstPort + i), Addresses: []netip.Addr{labAddress(byte(i))}}
		if err := ns.Do(func() error {
			link, err := netlink.LinkByName(podInterface)
			if err == nil {
				pod.MAC = link.Attrs().HardwareAddr
			}
			return err
		}); err != nil {
			return err
		}
		flows = append(flows, multitenant.Endpoint(pod, tenant)...)
		script += fmt.Sprintf("ip link set %s up; ovs-vsctl --db=unix:%s add-port %s %[1]s -- set interface %[1]s ofport_request=%[4]d\n",
			nodeEnds[i], p.ovs.daemons.DBSocket(), worker.Bridge, pod.OFPort)
	}
	pods, err := labAddress(0).Prefix(24)
	if err != nil {
		return err
	}
	flows = append(flows, multitenant.Base(multitenant.Node{
		GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, Gateway: pods.Addr().Next(), GatewayMAC: ovsdb.GatewayMAC("bench"), PodPrefix: pods,
		ClusterPrefix: netip.MustParsePrefix("10.244.0.0/16"), ServicePrefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
	})...)
	if err := p.run(ctx, script); err != nil {
		return err
	}
	conn, err := openflow.Dial(ctx, filepath.Join(p.ovs.dir, worker.Bridge+".mgmt"))
	if err != nil {
		return err
	}
	defer conn.Close()
	table := openflow.NewFlowTable(pipeline.Owner, pipeline.Version)
	table.Connect(conn)
	table.SetFlows(Multitenant, func() []openflow.Flow { return flows })
	_, err = table.Apply(ctx)
	return err
}

// run runs a script on the node.
func (p *path) run(ctx context.Context, script string) error {
	return finish(p.node, command(ctx, []string{"sh", "-ec", script}))
}

// gateway is the pods' next hop on the path Routed.
const gateway = "169.254.1.1"

func routedScript() string {
	script := "echo 1 >/proc/sys/net/ipv4/ip_forward\n"
	for i, name := range nodeEnds {
		script += fmt.Sprintf("ip address add %s/32 dev %s\nip link set %[2]s up\nip route add %s/32 dev %[2]s\n", gateway, name, labAddress(byte(i)))
	}
	return script + fmt.Sprintf(`nft -f - <<END
table inet routed {
  chain to-server {
    tcp dport %d accept
    drop
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state established,related accept
    ct state invalid drop
    oifname %s goto to-server
  }
}
END
`, packetsPort, nodeEnds[1])
}

// join makes a veth pair from the pod's interface to an interface of another namespace.
func join(pod, other *namespace.Namespace, name string) error {
	var end *os.File
	err := other.Do(func() (err error) {
		end, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		return err
	})
	if err != nil {
		return err
	}
	defer end.Close()
	return pod.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: podInterface, MTU: podMTU},
			PeerName:  name, PeerMTU: podMTU, PeerNamespace: netlink.NsFd(int(end.Fd())),
		})
	})
}

// openEnd sets a pod's end of a path up, in its namespace.
func openEnd(address netip.Addr, name, datapath string) error {
	link, err := netlink.LinkByName(podInterface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", podInterface, err)
	}
	bits := 24
	if name == Routed {
		bits = 32
	}
	ip, err := netlink.ParseAddr(netip.PrefixFrom(address, bits).String())
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.AddrReplace(link, ip), netlink.LinkSetUp(link)); err != nil {
		return err
	}
	switch name {
	case Switched, Multitenant:
		return ethtool.Set(podInterface, ethtool.TxChecksum, datapath == ovsdb.DatapathSystem)
	case Routed:
		hop := netip.MustParseAddr(gateway)
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: hop.AsSlice(), Flags: int(netlink.FLAG_ONLINK)})
	}
	return nil
}

func (p *path) stop() error {
	if p.wire != nil {
		p.wire.close()
	}
	err := p.ovs.stop()
	for _, ns := range []*namespace.Namespace{p.client, p.server, p.node} {
		if ns != nil {
			ns.Close()
		}
	}
	return err
}
