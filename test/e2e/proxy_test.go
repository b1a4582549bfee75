package e2e

import (
	"cmp"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// service is a Service with one endpoint, which is a pod or an address outside
// the cluster.
type service struct {
	// number makes the cluster's address, 10.96.0.number, and the ports of the
	// nodes: 30000 and number for any endpoint, 31000 and number for those of the
	// node itself (externalTrafficPolicy Local).
	number         int
	name, endpoint string
	// port is the endpoint's; 0: 80, where all pods of a lab serve.
	port uint16
}

const servicePort = 8080

func (s service) address(f model.Family) netip.Addr {
	return ofFamily(f, netip.AddrFrom4([4]byte{10, 96, 0, byte(s.number)}))
}

func ofFamily(f model.Family, a netip.Addr) netip.Addr {
	if f == model.IPv6 {
		return lab.Map(a)
	}
	return a
}

// clusterPods returns the prefix of all pods: a setting of the proxy.
func clusterPods(f model.Family) netip.Prefix {
	p := netip.MustParsePrefix("10.10.0.0/16")
	if f == model.IPv6 {
		return lab.MapPrefix(p)
	}
	return p
}

// proxied is a service as the proxy of one node sees it.
type proxied struct {
	service
	address, endpoint netip.Addr
	// local reports that the endpoint is on the node.
	local bool
}

// proxy has the rules of the proxy for Services on one node, in one family, in
// one of the ways in which kube-proxy does it.
type proxy struct {
	family   model.Family
	services []proxied
}

// newProxy makes the proxy of a node for the Services.
func newProxy(l *lab.Lab, n *lab.Node, f model.Family, services []service) proxy {
	p := proxy{family: f}
	for _, s := range services {
		x := proxied{service: s, address: s.address(f)}
		if a, err := netip.ParseAddr(s.endpoint); err == nil {
			x.endpoint = ofFamily(f, a)
		} else {
			x.endpoint = l.Pod(pod(s.endpoint)).Address(f)
			x.local = l.Pod(pod(s.endpoint)).Node() == n
		}
		p.services = append(p.services, x)
	}
	return p
}

// chains returns the chains that the iptables mode makes in the table nat.
func (p proxy) chains() []string {
	all := []string{"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"}
	for _, s := range p.services {
		for _, c := range []string{"SVC", "SEP", "EXT", "EXTLOCAL"} {
			all = append(all, fmt.Sprintf("KUBE-%s-%d", c, s.number))
		}
	}
	return all
}

// iptables returns the rules as the iptables mode makes them, for
// iptables-restore.
func (p proxy) iptables() string {
	var b strings.Builder
	pods := clusterPods(p.family)
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("*nat\n:%s - [0:0]", strings.Join(p.chains(), " - [0:0]\n:"))
	line("-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n-I POSTROUTING -j KUBE-POSTROUTING")
	line("-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000")
	line("-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN")
	line("-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000")
	line("-A KUBE-POSTROUTING -j MASQUERADE --random-fully")
	for _, s := range p.services {
		n := s.number
		line("-A KUBE-SERVICES -d %s -p tcp --dport %d -j KUBE-SVC-%d", s.address, servicePort, n)
		line("-A KUBE-SVC-%d ! -s %s -d %s -p tcp --dport %d -j KUBE-MARK-MASQ", n, pods, s.address, servicePort)
		line("-A KUBE-SVC-%d -j KUBE-SEP-%d", n, n)
		line("-A KUBE-SEP-%d -s %s -j KUBE-MARK-MASQ", n, s.endpoint)
		line("-A KUBE-SEP-%d -p tcp -j DNAT --to-destination %s", n, netip.AddrPortFrom(s.endpoint, cmp.Or(s.port, 80)))
		line("-A KUBE-NODEPORTS -p tcp --dport %d -j KUBE-EXT-%d", 30000+n, n)
		line("-A KUBE-EXT-%d -j KUBE-MARK-MASQ\n-A KUBE-EXT-%d -j KUBE-SVC-%d", n, n, n)
		line("-A KUBE-NODEPORTS -p tcp --dport %d -j KUBE-EXTLOCAL-%d", 31000+n, n)
		line("-A KUBE-EXTLOCAL-%d -s %s -j KUBE-SVC-%d", n, pods, n)
		line("-A KUBE-EXTLOCAL-%d -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ", n)
		line("-A KUBE-EXTLOCAL-%d -m addrtype --src-type LOCAL -j KUBE-SVC-%d", n, n)
		if s.local {
			line("-A KUBE-EXTLOCAL-%d -j KUBE-SEP-%d", n, n)
		}
	}
	line("-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\nCOMMIT")
	line("*filter\n:KUBE-FORWARD - [0:0]\n-I FORWARD -j KUBE-FORWARD")
	line("-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP")
	line("-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT")
	line("-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\nCOMMIT")
	return b.String()
}

// withoutIPTables returns the input that removes those rules.
func (p proxy) withoutIPTables() string {
	chains := p.chains()
	return "*nat\n-D PREROUTING -j KUBE-SERVICES\n-D OUTPUT -j KUBE-SERVICES\n-D POSTROUTING -j KUBE-POSTROUTING\n:" +
		strings.Join(chains, " - [0:0]\n:") + " - [0:0]\n-X " + strings.Join(chains, "\n-X ") + "\nCOMMIT\n" +
		"*filter\n-D FORWARD -j KUBE-FORWARD\n:KUBE-FORWARD - [0:0]\n-X KUBE-FORWARD\nCOMMIT\n"
}

// nftables returns the rules as the nftables mode makes them, in a table of their
// own.
func (p proxy) nftables() string {
	ip := map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[p.family]
	pods := clusterPods(p.family)
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("table %s kube-proxy {", ip)
	line("chain mark-for-masquerade { meta mark set mark or 0x4000; }")
	for _, s := range p.services {
		n := s.number
		line("chain endpoint-%d { %s saddr %s jump mark-for-masquerade; meta l4proto tcp dnat to %s; }", n, ip, s.endpoint, netip.AddrPortFrom(s.endpoint, cmp.Or(s.port, 80)))
		line("chain service-%d { %s saddr != %s %s daddr %s jump mark-for-masquerade; goto endpoint-%d; }", n, ip, pods, ip, s.address, n)
		line("chain external-%d { jump mark-for-masquerade; goto service-%d; }", n, n)
		line("chain external-local-%d {\n%s saddr %s goto service-%d", n, ip, pods, n)
		line("fib saddr type local jump mark-for-masquerade\nfib saddr type local goto service-%d", n)
		if s.local {
			line("goto endpoint-%d", n)
		}
		line("}")
	}
	line("chain services {")
	for _, s := range p.services {
		line("%s daddr %s tcp dport %d goto service-%d", ip, s.address, servicePort, s.number)
		line("fib daddr type local tcp dport %d goto external-%d", 30000+s.number, s.number)
		line("fib daddr type local tcp dport %d goto external-local-%d", 31000+s.number, s.number)
	}
	line("}")
	line("chain nat-prerouting { type nat hook prerouting priority -100; jump services; }")
	line("chain nat-output { type nat hook output priority -100; jump services; }")
	line("chain nat-postrouting { type nat hook postrouting priority 100; mark and 0x4000 == 0 return; meta mark set mark xor 0x4000; masquerade fully-random; }")
	line("}")
	return b.String()
}

// proxyModes are the ways of a proxy, each with the commands that program it and
// take it away, by family.
func proxyModes() map[string]func(t *testing.T, n *lab.Node, p proxy) (remove func()) {
	tables := func(variant string) func(t *testing.T, n *lab.Node, p proxy) func() {
		return func(t *testing.T, n *lab.Node, p proxy) func() {
			tool := map[model.Family]string{model.IPv4: "iptables-", model.IPv6: "ip6tables-"}[p.family] + variant
			feed(t, n, p.iptables(), tool+"-restore", "--noflush", "--wait=5")
			return func() { feed(t, n, p.withoutIPTables(), tool+"-restore", "--noflush", "--wait=5") }
		}
	}
	return map[string]func(t *testing.T, n *lab.Node, p proxy) func(){
		"iptables-legacy": tables("legacy"), "iptables-nft": tables("nft"),
		"nftables": func(t *testing.T, n *lab.Node, p proxy) func() {
			feed(t, n, p.nftables(), "nft", "-f", "-")
			return func() {
				feed(t, n, "", "nft", "delete", "table", map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[p.family], "kube-proxy")
			}
		},
	}
}

// feed runs a command on a node with the input.
func feed(t *testing.T, n *lab.Node, input, name string, args ...string) {
	t.Helper()
	var out []byte
	err := n.Namespace().Do(func() (err error) {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(input)
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %s %s: %v\n%s", n.Name(), name, strings.Join(args, " "), err, out)
	}
}
