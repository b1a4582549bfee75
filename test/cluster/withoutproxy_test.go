package cluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/model"
)

// testServicesWithoutProxy takes kube-proxy from the nodes, has the agents serve Services as docs/INSTALL.md says, goes through
// them, and gives kube-proxy its place back.
func testServicesWithoutProxy(t *testing.T, s *site) {
	s.notReference(t)
	var before corev1.ConfigMap
	if err := s.Get(t.Context(), &before, "-n", system, "configmap", "felixlike-config"); err != nil {
		t.Fatal(err)
	}
	configure := func(more string) {
		t.Helper()
		var text strings.Builder
		for line := range strings.Lines(before.Data["agent.yaml"] + more) {
			text.WriteString("    " + line)
		}
		s.kubectl(t, "-n", system, "patch", "configmap", "felixlike-config", "--type=merge", "--patch", "data:\n  agent.yaml: |\n"+text.String())
		s.roll(t)
	}
	defer func() {
		for _, node := range s.Nodes() {
			s.exec(t, node, `pgrep -x kube-proxy >/dev/null || setsid $(cat /run/kube-proxy.command) >/run/kube-proxy.log 2>&1 </dev/null &`)
		}
		configure("")
		for _, node := range s.Nodes() {
			if tables := s.exec(t, node, "nft list tables"); strings.Contains(tables, "felixlike-services") {
				t.Errorf("%s still has the table of Services:\n%s", node, tables)
			}
		}
	}()
	for _, node := range s.Nodes() {
		s.exec(t, node, `pid=$(pgrep -x kube-proxy) && tr '\0' ' ' </proc/$pid/cmdline >/run/kube-proxy.command && kill $pid
while kill -0 $pid 2>/dev/null; do sleep 0.1; done
$(cut -d ' ' -f 1 /run/kube-proxy.command) --cleanup`)
	}
	configure(fmt.Sprintf("serviceProxy: full\napiServer: [%s]\n", outside()[model.IPv4]))
	t.Run("ways", func(t *testing.T) { testServices(t, s) })
}
