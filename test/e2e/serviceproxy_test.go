package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// serviceObjects returns the objects of the tested Services: two of each, since externalTrafficPolicy is a Service's.
func serviceObjects(l *lab.Lab) string {
	var b strings.Builder
	for _, s := range testedServices() {
		for i, policy := range []string{"Cluster", "Local"} {
			name := s.name + "-" + strings.ToLower(policy)
			address := func(f model.Family) netip.Addr {
				if policy == "Local" {
					return ofFamily(f, netip.AddrFrom4([4]byte{10, 96, 1, byte(s.number)}))
				}
				return s.address(f)
			}
			fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Service, metadata: {namespace: x, name: %s}, spec: {type: NodePort, externalTrafficPolicy: %s, clusterIPs: [%s, %q], ports: [{port: %d, nodePort: %d}]}}\n",
				name, policy, address(model.IPv4), address(model.IPv6), servicePort, 30000+1000*i+s.number)
			for _, f := range model.Families() {
				endpoint, node := s.endpoint, ""
				if a, err := netip.ParseAddr(endpoint); err == nil {
					endpoint = ofFamily(f, a).String()
				} else {
					p := l.Pod(pod(endpoint))
					endpoint, node = p.Address(f).String(), ", nodeName: "+p.Node().Name()
				}
				fmt.Fprintf(&b, "---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: x, name: %s-%s, labels: {kubernetes.io/service-name: %s}}, addressType: IPv%s, ports: [{port: 80}], endpoints: [{addresses: [%q]%s}]}\n",
					name, f, name, f, endpoint, node)
			}
		}
	}
	return b.String()
}

// TestServicesWithoutProxy is TestServices with serviceProxy full: the agents serve the Services, and policy and sources are the same.
func TestServicesWithoutProxy(t *testing.T) {
	t.Parallel()
	for _, backend := range places() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLabWith(t, lab.Config{Backend: backend, ServiceProxy: config.ServiceProxyFull})
			set(t, l, state(t, threeNodes))
			expect(t, l, true, "x/b", "ip:"+stranger, model.TCP, 80)
			for _, c := range serviceCases() {
				set(t, l, state(t, threeNodes, c.policies))
				// The lab removes files that it does not know.
				if err := os.WriteFile(filepath.Join(l.Manifests(), "services.yaml"), []byte(serviceObjects(l)), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := l.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				judgeWays(t, l, c)
			}
			liveIsWanted(t, l.Name(), "node1")
			if out, _, _ := felixctl(t, "dump", "live", "--lab", l.Name(), "--node", "node1"); !strings.Contains(out, "# x/"+testedServices()[0].name+"-cluster:") {
				t.Errorf("felixctl dump does not name the Services\n%s", out)
			}
		})
	}
}
