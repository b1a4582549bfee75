package cluster

import (
	"context"
	"net"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/cluster/kubelab"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// testDatastore runs the suite of the datastore against the cluster's API server,
// with the rights that felixlike has and no others.
func testDatastore(t *testing.T, s *site) {
	ns, err := namespace.Open(kubelab.ControlPlane)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	admin, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	admin.Dial = func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = ns.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	agent := rest.CopyConfig(admin)
	agent.Impersonate.UserName = "system:serviceaccount:" + system + ":felixlike"
	kubernetestest.Suite(t, admin, agent)
	kubernetestest.Events(t, admin, agent)
}
