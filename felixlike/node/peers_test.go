package node

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
)

// TestUnreachablePeersAreNamed: a node without an address that the tunnel can use is in status, with what is wrong.
func TestUnreachablePeersAreNamed(t *testing.T) {
	v := &driver.View{}
	f := moduletest.Start(t, driver.Config{}, v, Peers(v))
	peer := func(name, cidr string, addresses ...string) datastore.Event {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: []string{cidr}}}
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		return datastore.NodeSet{Node: n}
	}
	f.Begin(t, peer("none", "10.10.1.0/24"), peer("six", "10.10.2.0/24", "fd00::9"), peer("four", "10.10.3.0/24", "192.168.50.12"))
	problems, found := f.Status().Problems, map[string]string{}
	for _, p := range problems {
		found[p.Object.Name+" "+p.Field] = p.Reason
	}
	if len(problems) != 2 || !strings.HasPrefix(found["none status.addresses"], "no InternalIP") || !strings.HasPrefix(found["six status.addresses"], "there is no tunnel to fd00::9") {
		t.Errorf("problems %v", found)
	}
	if missing := f.Missing(t); missing != "" {
		t.Errorf("not ready: %s", missing)
	}
}
