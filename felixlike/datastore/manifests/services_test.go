package manifests

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

const servicesYAML = `apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec: {clusterIPs: [10.96.0.1, "fd00:96::1"], selector: {app: web}, ports: [{port: 80, name: http, targetPort: http}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSliceList
items:
- metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{port: 8080}]
  endpoints: [{addresses: [10.0.0.1], nodeName: n1, conditions: {ready: true}}]
`

// TestServices: Services and EndpointSlices are read if they are asked for, with the API server's defaults. Errors keep the last good version.
func TestServices(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "services.yaml", servicesYAML)
	h := startWith(t, Options{Dir: dir, Rescan: time.Hour, Services: true, Log: slog.New(slog.DiscardHandler)})
	h.sync()
	h.wantProblems()
	h.wantNames("endpointslice/shop/web-1", "namespace/shop", "service/shop/web")
	s, slice := h.object("service/shop/web").(*corev1.Service), h.object("endpointslice/shop/web-1").(*discoveryv1.EndpointSlice)
	if s.Spec.ClusterIP != "10.96.0.1" || s.Spec.Type != corev1.ServiceTypeClusterIP || s.Spec.Ports[0].Protocol != corev1.ProtocolTCP {
		t.Errorf("%+v", s.Spec)
	}
	if p := slice.Ports[0]; *p.Name != "" || *p.Protocol != corev1.ProtocolTCP {
		t.Errorf("%+v", p)
	}
	for _, c := range []struct{ old, new, problem string }{
		{"port: 80,", "port: 70000,", "service/shop/web: spec.ports[0].port: 70000 is not between 1 and 65535"},
		{"port: 80,", "prt: 80,", "service/shop/web: spec.ports[0].prt: unknown field"},
		{"10.96.0.1,", "10.96.0,", `service/shop/web: spec.clusterIP: "10.96.0" is no address`},
		{"spec: {", "spec: {externalIPs: [127.0.0.1], ", "service/shop/web: spec.externalIPs[0]: 127.0.0.1 is unspecified, loopback, link-local or multicast"},
		{"spec: {", "spec: {externalTrafficPolicy: local, ", `service/shop/web: spec.externalTrafficPolicy: "local" is not supported`},
		{"spec: {", "spec: {loadBalancerSourceRanges: [all], ", `service/shop/web: spec.loadBalancerSourceRanges[0]: "all" is no prefix`},
		{"addressType: IPv4", "addressType: IPv6", "endpointslice/shop/web-1: endpoints[0].addresses[0]: 10.0.0.1 is no address of addressType IPv6"},
		{"  addressType: IPv4\n", "", "endpointslice/shop/web-1: addressType: required"},
		{"addresses: [10.0.0.1], ", "", "endpointslice/shop/web-1: endpoints[0].addresses: required"},
	} {
		h.write("services.yaml", strings.Replace(servicesYAML, c.old, c.new, 1))
		h.sync()
		got := h.problems()
		if len(got) == 0 || !strings.Contains(got[0], c.problem) || !strings.HasSuffix(got[0], "; the last good version stays in force") {
			t.Errorf("%s: %v", c.problem, got)
		}
		if h.object("service/shop/web") != s && cmp.Diff(s, h.object("service/shop/web")) != "" || h.object("endpointslice/shop/web-1") == nil {
			t.Errorf("%s: in force: %v", c.problem, h.names())
		}
	}
	h.write("services.yaml", servicesYAML)
	h.write("other.yaml", "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {namespace: shop, name: web}\nspec: {template: {}}\n")
	h.sync()
	h.wantProblems("service/shop/web: ignored: kind not used")
	h.remove("services.yaml")
	h.remove("other.yaml")
	h.sync()
	h.wantNames()
}

// TestServicesOff: without the option, both kinds are ignored by name.
func TestServicesOff(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "services.yaml", servicesYAML+strings.ReplaceAll("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a}\n", "\t", ""))
	h := start(t, dir, time.Hour)
	h.sync()
	h.wantNames()
	h.wantProblems("endpointslice/a: ignored: kind not used", `endpointslicelist/document 2`, "service/shop/web: ignored: kind not used")
}
