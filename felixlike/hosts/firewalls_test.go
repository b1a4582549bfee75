package hosts

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/firewalls"
)

// What other programs write, in its shape: each accepts new connections to ports 22 and 80 of the node, and drops or rejects those to port 6443.
const (
	// firewalld (1.0 and newer, backend nftables), zone public, with a policy for packets of the node.
	firewalld = `table inet firewalld {
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump filter_INPUT_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_OUTPUT {
		type filter hook output priority filter + 10; policy accept;
		ct state { established, related } accept
		oifname "lo" accept
		jump filter_OUTPUT_POLICIES_pre
	}
	chain filter_INPUT_ZONES {
		goto filter_IN_public
	}
	chain filter_IN_public {
		jump filter_IN_public_allow
		meta l4proto { icmp, ipv6-icmp } accept
		reject with icmpx admin-prohibited
	}
	chain filter_IN_public_allow {
		tcp dport 22 accept
		tcp dport 80 accept
	}
	chain filter_OUTPUT_POLICIES_pre {
		jump filter_OUT_policy_node
	}
	chain filter_OUT_policy_node {
		tcp dport 6443 reject with icmpx admin-prohibited
	}
}`
	// kube-proxy, mode nftables: ports of Services without endpoints.
	kubeProxyNFTables = `table FAMILY kube-proxy {
	map no-endpoint-nodeports {
		type inet_proto . inet_service : verdict
		elements = { tcp . 6443 : goto reject-chain }
	}
	chain filter-input {
		type filter hook input priority -110; policy accept;
		ct state new jump nodeport-endpoints-check
	}
	chain nodeport-endpoints-check {
		fib daddr type local meta l4proto . th dport vmap @no-endpoint-nodeports
	}
	chain reject-chain {
		reject
	}
}`
	// ufw, with its chains for both families (ufw- and ufw6-).
	ufw = `*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:UFW-before-input - [0:0]
:UFW-before-output - [0:0]
:UFW-user-input - [0:0]
:UFW-user-output - [0:0]
-A INPUT -j UFW-before-input
-A OUTPUT -j UFW-before-output
-A UFW-before-input -i lo -j ACCEPT
-A UFW-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A UFW-before-input -p ICMP -j ACCEPT
-A UFW-before-input -j UFW-user-input
-A UFW-before-output -o lo -j ACCEPT
-A UFW-before-output -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A UFW-before-output -j UFW-user-output
-A UFW-user-input -p tcp --dport 22 -j ACCEPT
-A UFW-user-input -p tcp --dport 80 -j ACCEPT
-A UFW-user-output -p tcp --dport 6443 -j DROP
COMMIT
`
	// kube-proxy, mode iptables: a health check port, and a port of a Service without endpoints.
	kubeProxyIPTables = `*filter
:KUBE-NODEPORTS - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A KUBE-NODEPORTS -p tcp -m comment --comment "x/web health check node port" -m tcp --dport 80 -j ACCEPT
-A KUBE-EXTERNAL-SERVICES -p tcp -m comment --comment "x/none has no endpoints" -m addrtype --dst-type LOCAL -m tcp --dport 6443 -j REJECT
COMMIT
`
	// docker: a container, which is the pod here, with the published port 8080.
	docker = `*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER ! -i pod0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination CONTAINER
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -o pod0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o pod0 -j DOCKER
-A FORWARD -i pod0 ! -o pod0 -j ACCEPT
-A DOCKER ! -i pod0 -o pod0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER-USER -j RETURN
COMMIT
`
)

// real returns the root of the real firewalls of the node.
func (w *world) real(variant string) *firewalls.Root {
	w.Helper()
	if w.programs == nil {
		w.programs = firewalls.New(w, w.at["node"], variant)
	}
	return w.programs
}

// The real programs, with the rules of those above. Each also loads its rules again.
const (
	realFirewalld = `if ! [ -S /run/dbus/system_bus_socket ]; then
	dbus-daemon --system --fork --nopidfile
	firewall-offline-cmd --zone=public --add-port=22/tcp --add-port=80/tcp
	firewall-offline-cmd --new-policy=node
	firewall-offline-cmd --policy=node --add-ingress-zone=HOST
	firewall-offline-cmd --policy=node --add-egress-zone=ANY
	firewall-offline-cmd --policy=node --add-rich-rule='rule port port="6443" protocol="tcp" reject'
fi
while pkill firewalld; do sleep 0.1; done
firewalld --nopid
until firewall-cmd --state; do sleep 0.1; done`
	realUFW = `ufw allow 22/tcp
ufw allow 80/tcp
ufw deny out 6443/tcp
ufw --force disable
ufw --force enable`
	realDocker = `if ! docker version; then
	dockerd --storage-driver=vfs --cgroup-parent="$GROUP" --ipv6 --fixed-cidr-v6=fd60:d::/64 --experimental --ip6tables >/run/dockerd.log 2>&1 &
	until docker version >/dev/null 2>&1; do sleep 0.1; done
	tar -C / -c bin/busybox | docker import - busybox
fi
docker rm -f web || :
docker run -d -p 8080:80 --name web busybox /bin/busybox nc -ll -p 80 -e /bin/busybox cat`
)

// restore loads a ruleset of iptables in both families.
func (w *world) restore(variant, text string, four, six *strings.Replacer) {
	w.Helper()
	w.at["node"].Feed(w, four.Replace(text), "iptables-"+variant+"-restore", "--noflush")
	w.at["node"].Feed(w, six.Replace(text), "ip6tables-"+variant+"-restore", "--noflush")
}

// TestOtherFirewalls: beside firewalld, ufw and kube-proxy, a packet passes if both let it: our drop is final although they accept, and theirs is
// although we allow. This holds whoever came first, and also for our failsafe ports.
func TestOtherFirewalls(t *testing.T) {
	const ours = "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop, ports: [{port: 80}]}, {action: Allow}], egress: [{action: Drop, ports: [{port: 80}]}, {action: Allow}]}"
	four, six := strings.NewReplacer("UFW", "ufw", "ICMP", "icmp"), strings.NewReplacer("UFW", "ufw6", "ICMP", "ipv6-icmp")
	iptables := func(text string) func(*world, string) {
		return func(w *world, variant string) { w.restore(variant, text, four, six) }
	}
	for _, f := range []struct {
		name     string
		variants []string
		load     func(w *world, variant string)
		egress   bool
	}{
		{"firewalld", []string{""}, func(w *world, _ string) { w.at["node"].Feed(w, firewalld, "nft", "-f", "-") }, true},
		{"ufw", []string{"nft", "legacy"}, iptables(ufw), true},
		{"kube-proxy nftables", []string{""}, func(w *world, _ string) {
			for _, family := range []string{"ip", "ip6"} {
				w.at["node"].Feed(w, strings.Replace(kubeProxyNFTables, "FAMILY", family, 1), "nft", "-f", "-")
			}
		}, false},
		{"kube-proxy iptables", []string{"nft", "legacy"}, iptables(kubeProxyIPTables), false},
		{"real firewalld", []string{"nft"}, func(w *world, variant string) { w.real(variant).Run(w, realFirewalld) }, true},
		{"real ufw", []string{"nft", "legacy"}, func(w *world, variant string) { w.real(variant).Run(w, realUFW) }, true},
	} {
		for _, variant := range f.variants {
			t.Run(strings.TrimSpace(f.name+" "+variant), func(t *testing.T) {
				t.Parallel()
				if variant != "" {
					if _, err := exec.LookPath("iptables-" + variant + "-restore"); err != nil {
						t.Skip(err)
					}
				}
				w := newWorld(t)
				expect := func(when string, node80, peer6443 string) {
					t.Helper()
					for way, want := range map[[3]string]string{
						{"peer", "node", "22"}: "46", {"peer", "node", "80"}: node80, {"peer", "node", "6443"}: "", {"node", "peer", "80"}: node80, {"node", "peer", "6443"}: peer6443,
					} {
						got := w.reaches(way[0], way[1], way[2])
						for range 3 { // a busy machine may answer late
							if len(got) < len(want) {
								got = w.reaches(way[0], way[1], way[2])
							}
						}
						if got != want {
							t.Errorf("%s: %v in families %q, want %q", when, way, got, want)
						}
					}
				}
				theirs := "46"
				if f.egress {
					theirs = ""
				}
				session := w.session("peer", "node", "80")
				f.load(w, variant)
				expect("theirs alone", "46", theirs)
				a := w.start(t, nil, 0)
				a.Begin(t, policyOf(t, "ours", ours))
				a.awaits(t, control.HostsConfirmed)
				expect("theirs first", "", theirs)
				w.alive(session)
				// As after a restart of them all: ours is repaired, and theirs follows.
				w.at["node"].Run(t, "nft", "flush", "ruleset")
				eventually.True(t, "repaired", func() bool { return w.table() != "" })
				if variant == "legacy" {
					w.sh("node", "iptables-legacy -F; ip6tables-legacy -F; iptables-legacy -X; ip6tables-legacy -X")
				}
				f.load(w, variant)
				expect("ours first", "", theirs)
				w.alive(session)
				w.at["node"].Feed(t, "table inet theirs {\n chain in {\n type filter hook input priority 0\n ct state new tcp dport 22 drop\n }\n}", "nft", "-f", "-")
				if got := w.reaches("peer", "node", "22"); got != "" {
					t.Errorf("a failsafe port is open in families %q although another firewall drops it", got)
				}
				w.at["node"].Run(t, "nft", "delete", "table", "inet", "theirs")
				a.Source.Send(true, datastore.AntreaDeleted{ID: antrea.ID{Kind: antrea.KindClusterNetworkPolicy, Name: "ours"}})
				a.Programmed(t)
				eventually.True(t, "no table", func() bool { return w.table() == "" })
				expect("theirs again", "46", theirs)
			})
		}
	}
}

// TestPublishedPorts: a port that docker publishes for a container is forwarded, so policies for nodes do not judge it, but those before DNAT do. The node's own ports
// are closed. This holds whoever came first.
func TestPublishedPorts(t *testing.T) {
	for _, variant := range []string{"nft", "legacy", "nft, real docker", "legacy, real docker"} {
		for _, oursFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ours first %v", variant, oursFirst), func(t *testing.T) {
				t.Parallel()
				variant, _, real := strings.Cut(variant, ",")
				if _, err := exec.LookPath("iptables-" + variant + "-restore"); err != nil {
					t.Skip(err)
				}
				w := newWorld(t)
				w.sh("node", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
				w.sh("pod", "ip route add default via 10.10.0.1; ip route add default via fd10::1")
				published := func() bool { return w.reaches("peer", "node", "8080") == "46" }
				theirs := func() {
					if real {
						w.real(variant).Run(t, realDocker)
					} else {
						w.restore(variant, docker, strings.NewReplacer("CONTAINER", "10.10.0.2:80"), strings.NewReplacer("CONTAINER", "[fd10::2]:80"))
					}
					eventually.True(t, "published", published)
				}
				if !oursFirst {
					theirs()
				}
				a := w.start(t, nil, 0)
				a.Begin(t, policyOf(t, "all", denyAll))
				a.awaits(t, control.HostsConfirmed)
				if oursFirst {
					theirs()
				}
				eventually.True(t, "the published port is open", published)
				if got := w.reaches("peer", "node", "80"); got != "" {
					t.Errorf("the node's own port is open in families %q", got)
				}
				a.Source.Send(true, preDNAT(policyOf(t, "before", denyIn)))
				a.Programmed(t)
				a.awaits(t, control.HostsConfirmed)
				eventually.True(t, "ssh is open", func() bool { return w.reaches("peer", "node", "22") == "46" })
				if got := w.reaches("peer", "node", "8080"); got != "" {
					t.Errorf("before DNAT: the published port is open in families %q", got)
				}
			})
		}
	}
}
