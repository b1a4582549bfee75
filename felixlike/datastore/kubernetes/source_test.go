package kubernetes_test

import (
	"testing"

	"go.uber.org/goleak"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/test/kubernetestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a cluster with an API server that can fail.
type fixture struct {
	*kubernetestest.Server
	*clientset.Clientset
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Server: kubernetestest.NewServer(t)}
	f.Clientset = f.clientOf(t, kubernetestest.Admin)
	f.serviceCIDR(t, "kubernetes", "10.96.0.0/16")
	return f
}

func (f *fixture) clientOf(t *testing.T, name string) *clientset.Clientset {
	t.Helper()
	return clientFor(t, f.Config(name))
}

func clientFor(t *testing.T, config *rest.Config) *clientset.Clientset {
	t.Helper()
	c, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fixture) serviceCIDR(t *testing.T, name string, cidrs ...string) {
	t.Helper()
	c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
	if _, err := f.NetworkingV1().ServiceCIDRs().Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestSuite(t *testing.T) {
	for _, streams := range []bool{true, false} {
		name := map[bool]string{true: "streams", false: "lists"}[streams]
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.StreamLists(streams)
			kubernetestest.Suite(t, f.Config(kubernetestest.Admin), f.Config("agent"))
		})
	}
}
