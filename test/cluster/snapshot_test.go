package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// snapshot is the state of a node: one line each for links, addresses, routes,
// rules, sets, files and processes, sorted, without kube-proxy's own.
type snapshot []string

// lookScript prints all of it. Each line begins with its kind. It leaves out the files of
// containerd's own loopback plugin.
const lookScript = `
say() { sed "s/^/$1: /"; }
ip -o link | sed -E 's/^[0-9]+: ([^:@]+).* (mtu [0-9]+).*/\1 \2/' | say link
ip -o address show | sed -E 's/^[0-9]+: +//; s/ +/ /g; s/\\.*//' | say address
(ip rule; ip -6 rule) | say rule
(ip route show table all; ip -6 route show table all) | grep -v 'table local\|^local\|^broadcast\|^multicast\|^anycast' | sed -E 's/ +$//; s/ expires [0-9]+sec//' | say route
nft list tables | say table
(iptables-legacy-save; ip6tables-legacy-save) 2>/dev/null | grep -i flx | say legacy
(iptables-nft-save; ip6tables-nft-save) 2>/dev/null | grep -i 'flx\|felixlike' | say iptables
ipset list -n 2>/dev/null | say ipset
sysctl -a 2>/dev/null | grep -E '^net\.(ipv[46]\.(conf|neigh|ip_forward)|netfilter\.nf_conntrack_tcp|bridge)' | grep -v 'mc_forwarding\|stable_secret' | say sysctl
find /etc/cni /opt/cni /var/lib/cni /var/lib/felixlike /run/felixlike /run/openvswitch /var/run/openvswitch /etc/felixlike 2>/dev/null | grep -v '^/var/lib/cni$\|^/var/lib/cni/results$\|/cni-loopback-' | say file
for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline; echo; done 2>/dev/null | cut -d' ' -f1 | grep -E 'ovs|felixlike' | grep -v /kubelab/ | say process
mount | grep -E 'felixlike|openvswitch' | say mount
true
`

// proxyLines are lines that kube-proxy and the kubelet add in their own time.
func proxyLine(line string) bool {
	for _, part := range []string{"table: table ip kube-proxy", "table: table ip6 kube-proxy", "route_localnet", "KUBE-"} {
		if strings.Contains(line, part) {
			return true
		}
	}
	// Tables of iptables-nft appear when the kubelet or kube-proxy first uses them.
	for _, table := range []string{"filter", "nat", "mangle", "raw", "security"} {
		if line == "table: table ip "+table || line == "table: table ip6 "+table {
			return true
		}
	}
	return false
}

// snapshots looks at all nodes.
func (s *site) snapshots(t *testing.T) map[string]snapshot {
	t.Helper()
	var mu sync.Mutex
	all := map[string]snapshot{}
	s.onNodes(t, func(node string) error {
		out, err := s.Exec(t.Context(), node, lookScript)
		if err != nil {
			return err
		}
		var lines snapshot
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); !proxyLine(line) {
				lines = append(lines, line)
			}
		}
		slices.Sort(lines)
		mu.Lock()
		defer mu.Unlock()
		all[node] = slices.Compact(lines)
		return nil
	})
	return all
}

// difference lists the lines that are new, and those that are gone.
func (before snapshot) difference(after snapshot) []string {
	var all []string
	for _, line := range after {
		if !slices.Contains(before, line) {
			all = append(all, "+ "+line)
		}
	}
	for _, line := range before {
		if !slices.Contains(after, line) {
			all = append(all, "- "+line)
		}
	}
	return all
}

// same waits until the nodes look as they did before.
func (s *site) same(t *testing.T, limit time.Duration, before map[string]snapshot, look func(*testing.T) map[string]snapshot) {
	t.Helper()
	until(t, limit, func() error {
		now := look(t)
		for _, node := range s.Nodes() {
			if d := before[node].difference(now[node]); len(d) > 0 {
				return fmt.Errorf("%s differs:\n%s", node, strings.Join(d, "\n"))
			}
		}
		return nil
	})
}

// gone returns an error while there are pods.
func (s *site) gone(t *testing.T, ns, selector string) error {
	t.Helper()
	pods, err := s.Pods(t.Context(), ns, selector)
	if err != nil {
		return err
	}
	if len(pods) > 0 {
		return fmt.Errorf("%d pods of %s are still there, %s among them", len(pods), ns, pods[0].Name)
	}
	return nil
}
