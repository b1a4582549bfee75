package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// stormPods is the number of pods that come and go at once.
const stormPods = 100

// plumbingScript prints the parts of a node that belong to pods: ports of the bridge,
// veths, reservations of addresses, flows, sets and rules, without counters.
const plumbingScript = `
say() { sed "s/^/$1: /"; }
ovs=/run/felixlike/ovs
ip -o link | sed -E 's/^[0-9]+: ([^:@]+).*/\1/' | say link
ovs-vsctl --db=unix:$ovs/db.sock list-ports br-int | say port
ovs-ofctl -O OpenFlow15 dump-flows unix:$ovs/br-int.mgmt | grep cookie= | sed -E 's/(duration|n_packets|n_bytes|idle_age|hard_age)=[^ ]*//g; s/, +/,/g; s/^ +//' | grep -v 'cookie=0xf11[ef]' | say flow
find /var/lib/cni/networks -type f 2>/dev/null | grep -v 'last_reserved\|/lock' | say reserved
ls /run/netns /var/run/netns 2>/dev/null | sort -u | say netns
nft -s list ruleset 2>/dev/null | awk '/^table/ {ours = /felixlike/} ours' | tr -d '\t' | say nft
ipset save 2>/dev/null | grep flx | sed -E 's/ initval [^ ]+//' | say ipset
(iptables-nft-save; ip6tables-nft-save; iptables-legacy-save; ip6tables-legacy-save) 2>/dev/null | grep flx | sed -E 's/\[[0-9]+:[0-9]+\]//' | say iptables
true
`

// plumbing returns the parts of all nodes that belong to pods.
func plumbing(t *testing.T, s *site) map[string]snapshot {
	t.Helper()
	var mu sync.Mutex
	all := map[string]snapshot{}
	s.onNodes(t, func(node string) error {
		out, err := s.Exec(t.Context(), node, plumbingScript)
		if err != nil {
			return err
		}
		lines := snapshot(strings.Split(strings.TrimSpace(out), "\n"))
		slices.Sort(lines)
		mu.Lock()
		defer mu.Unlock()
		all[node] = lines
		return nil
	})
	return all
}

// settled looks at the nodes when the pods of earlier tests are gone from them too,
// which is later than from the API server.
func settled(t *testing.T, s *site) map[string]snapshot {
	t.Helper()
	last := plumbing(t, s)
	until(t, readyTime, func() error {
		before := last
		time.Sleep(3 * time.Second)
		last = plumbing(t, s)
		for _, node := range s.Nodes() {
			if d := before[node].difference(last[node]); len(d) > 0 {
				return fmt.Errorf("%s still changes:\n%s", node, strings.Join(d, "\n"))
			}
		}
		return nil
	})
	return last
}

// testStorm creates and deletes a hundred pods at once: they leave nothing.
func testStorm(t *testing.T, s *site) {
	onlyFull(t)
	const ns = "storm"
	s.inNamespace(t, ns)
	before := settled(t, s)
	report := timeAdds(t, s)
	start := time.Now()
	s.apply(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: %s, name: storm}
spec:
  replicas: %d
  selector: {matchLabels: {app: storm}}
  template:
    metadata: {labels: {app: storm}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "kubelab.local/pause:1"}]
`, ns, stormPods))
	s.kubectl(t, "wait", "-n", ns, "--for=condition=Available", "deployment/storm", "--timeout=4m")
	up := time.Now()
	s.kubectl(t, "delete", "-n", ns, "deployment/storm", "--wait")
	until(t, 2*readyTime, func() error { return s.gone(t, ns, "app=storm") })
	t.Logf("%d pods: all up after %s, all gone %s later", stormPods, up.Sub(start).Round(100*time.Millisecond), since(up))
	report()
	s.same(t, time.Minute, before, func(t *testing.T) map[string]snapshot { return plumbing(t, s) })
}
