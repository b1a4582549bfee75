package backend

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/test/tablestest"
)

// TestKubeProxy: tables and chains of kube-proxy are found in each of its modes, and chains of the kubelet are not taken for them.
func TestKubeProxy(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft", "iptables-nft", "ip6tables-nft", "iptables-legacy")
	check := func(want ...string) {
		t.Helper()
		got, err := KubeProxy(t.Context(), ns.FD)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	ns.Feed(t, "table inet felixlike-services {\nchain KUBE-PROXY {\n}\n}\n", "nft", "-f", "-")
	ns.Run(t, "iptables-nft", "-t", "mangle", "-N", "KUBE-KUBELET-CANARY")
	check()
	ns.Feed(t, "table ip kube-proxy {\nchain services {\n}\nchain other {\n}\n}\n", "nft", "-f", "-")
	ns.Run(t, "ip6tables-nft", "-t", "nat", "-N", "KUBE-SERVICES")
	ns.Run(t, "iptables-legacy", "-t", "nat", "-N", "KUBE-SERVICES")
	check(
		"table ip kube-proxy: remove kube-proxy from this node and run nft delete table ip kube-proxy",
		"chain KUBE-SERVICES of table ip6 nat (iptables-nft): remove kube-proxy from this node and run kube-proxy --cleanup",
		"chain KUBE-SERVICES of table nat (iptables-legacy, IPv4): remove kube-proxy from this node and run kube-proxy --cleanup",
	)
	ns.Run(t, "nft", "delete", "table", "ip", "kube-proxy")
	ns.Run(t, "ip6tables-nft", "-t", "nat", "-X", "KUBE-SERVICES")
	ns.Run(t, "iptables-legacy", "-t", "nat", "-X", "KUBE-SERVICES")
	check()
}
