package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// Try programs one object of each kind with the configured backend in a scratch network
// namespace. It returns the objects that the kernel refused, or the missing tools. For
// backend openflow it tries only the host's table, which is in nftables: flows need a switch.
func Try(ctx context.Context, cfg *config.Effective) error {
	c, err := ConfigOf(cfg, ovsdb.DatapathNetdev)
	if err != nil {
		return err
	}
	return tryConfig(ctx, c)
}

func tryConfig(ctx context.Context, c Config) error {
	if c.Name == config.OpenFlow {
		c.Name = config.NFTables
	}
	tried, err := New(ctx, c) // in the node's namespace, to detect the iptables variant
	if err != nil {
		return err
	}
	c.Name = tried.Name()
	if err := tried.Close(); err != nil {
		return err
	}
	return inScratch(ctx, c, tryModel())
}

// inScratch makes a backend program a model in a scratch network namespace, and returns the
// objects that the kernel refused.
func inScratch(ctx context.Context, c Config, updates []model.Update) error {
	ns, err := scratchNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	c.NetNS, c.Node = int(ns.Fd()), tryNode
	b, err := New(ctx, c)
	if err != nil {
		return err
	}
	for _, m := range b.Stage().Managers {
		for _, u := range updates {
			m.OnUpdate(u)
		}
		m.CompleteDeferredWork()
	}
	done, err := b.Stage().Apply(ctx)
	for _, r := range done.Refused {
		err = errors.Join(err, fmt.Errorf("the kernel refuses %s %s %s: %s", r.Object, r.Name, r.Rule, r.Reason))
	}
	return errors.Join(err, b.Close())
}

// scratchNamespace returns a new network namespace, which ends when it is closed.
func scratchNamespace() (*os.File, error) {
	type result struct {
		ns  *os.File
		err error
	}
	made := make(chan result, 1)
	go func() {
		// Never unlocked: the thread ends with this goroutine.
		runtime.LockOSThread()
		var r result
		if r.err = unix.Unshare(unix.CLONE_NEWNET); r.err == nil {
			r.ns, r.err = os.Open("/proc/thread-self/ns/net")
		}
		made <- r
	}()
	r := <-made
	if r.err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", r.err)
	}
	return r.ns, nil
}

const tryNode = "node"

// tryModel is a model with one pod and rules that use each kind of set, port and action, in
// both families.
func tryModel() []model.Update {
	pod := model.PodID{Namespace: "default", Name: "pod"}
	admin := model.PolicyID{Tier: model.TierAdmin, Name: "admin"}
	policy := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "default", Name: "policy"}
	addresses := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}
	const pods, networks, ports = "a1", "n1", "p1"
	group := func(id model.GroupID, kind model.GroupKind, members ...model.Member) model.GroupUpdate {
		return model.GroupUpdate{Group: model.Group{ID: id, Kind: kind}, Added: members}
	}
	v4, v6 := model.AddressMember(addresses[0]), model.AddressMember(addresses[1])
	named := func(m model.Member) model.Member {
		return model.Member{Prefix: m.Prefix, Protocol: model.TCP, Port: 80}
	}
	rules := []model.Rule{
		{Name: "0", Action: model.Allow, Peers: []model.GroupID{pods}, Ports: []model.PortRange{
			{Protocol: model.TCP, First: 80, Last: 90}, {Protocol: model.UDP, First: 53, Last: 53}, {Protocol: model.SCTP, First: 0, Last: 65535},
		}},
		{Name: "1", Action: model.Allow, Peers: []model.GroupID{networks}, AnyPort: true},
		{Name: "2", Action: model.Allow, AnyPeer: true, NamedPorts: []model.GroupID{ports}},
	}
	applied := model.Applied{Admin: []model.PolicyID{admin}, NetworkPolicies: []model.PolicyID{policy}}
	return []model.Update{
		model.NodeUpdate{Node: &model.Node{
			Name: tryNode, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")},
		}},
		group(pods, model.Addresses, v4, v6),
		group(networks, model.Networks, model.Member{Prefix: netip.MustParsePrefix("10.1.0.0/16")}, model.Member{Prefix: netip.MustParsePrefix("fd01::/64")}),
		group(ports, model.AddressPorts, named(v4), named(v6)),
		model.PolicyUpdate{Policy: &model.Policy{ID: admin, Ingress: []model.Rule{
			{Name: "0", Action: model.Pass, AnyPeer: true, AnyPort: true}, {Name: "1", Action: model.Deny, Peers: []model.GroupID{pods}, AnyPort: true},
		}}},
		model.PolicyUpdate{Policy: &model.Policy{ID: policy, Ingress: rules, Egress: rules}},
		model.AttachmentUpdate{Attachment: &model.Attachment{
			Pod: pod, Interface: model.PodInterfacePrefix + "pod", OFPort: 10, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Addresses: addresses,
		}},
		model.EndpointUpdate{Endpoint: &model.Endpoint{ID: pod, Ingress: applied, Egress: applied}},
	}
}
