package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// denyAll isolates a namespace's pods in both directions.
func denyAll(ns string) string {
	return fmt.Sprintf(`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: %s, name: deny-all}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
`, ns)
}

// testProbes has the kubelet probe pods that are under deny-all from the start: they
// get ready and are not restarted.
func testProbes(t *testing.T, s *site) {
	const ns = "probed"
	s.inNamespace(t, ns)
	var manifests strings.Builder
	manifests.WriteString(denyAll(ns))
	for i, node := range s.Nodes() {
		fmt.Fprintf(&manifests, `---
apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: p%d}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: kubelab.local/agnhost:1
    args: [netexec, --http-port=8080]
    startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 30}
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 1}
    livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 3}
`, ns, i, node)
	}
	pods := s.start(t, ns, manifests.String())
	// Deny-all is in force, and the probes go on.
	for _, p := range pods {
		p.serve(t, 80)
	}
	both := append(pods["p0"].flows(pods["p1"], 80), pods["p1"].flows(pods["p0"], 80)...)
	expect(t, false, "under deny-all", both)
	time.Sleep(4 * time.Second) // four failures would show
	// The kubelet may miss one answer on a busy machine. Denied probes fail every time, and
	// restart the container.
	until(t, readyTime, func() error {
		found, err := s.Pods(t.Context(), ns, "")
		for _, p := range found {
			st := p.Status.ContainerStatuses[0]
			if st.RestartCount > 0 {
				t.Fatalf("%s: restarted %d times", p.Name, st.RestartCount)
			}
			if !st.Ready {
				err = fmt.Errorf("%s is not ready", p.Name)
			}
		}
		return err
	})
	s.kubectl(t, "-n", ns, "delete", "networkpolicy", "deny-all")
	expect(t, true, "without deny-all", both)
}
