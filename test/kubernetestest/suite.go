package kubernetestest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/model"
)

// Suite tests a source against an API server. The source uses the configuration
// agent, the test uses admin, which may write. It leaves nothing behind, and
// ignores other objects: its updates name no version, since the controllers
// of a real cluster change objects too.
func Suite(t *testing.T, admin, agent *rest.Config) {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	s := &suite{
		Clientset: client, ctx: t.Context(), namespace: fmt.Sprintf("flx-suite-%x", time.Now().UnixNano()&0xffffff),
		log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	s.node = s.namespace + "-node"
	t.Cleanup(func() {
		s.remove(t)
		utilnet.CloseIdleConnectionsFor(client.CoreV1().RESTClient().(*rest.RESTClient).Client.Transport)
	})
	s.prepare(t)
	s.view = Open(t, agent, s.log)
	t.Run("first listing", s.first)
	t.Run("addresses of pods", s.addresses)
	t.Run("heartbeats", s.heartbeats)
	t.Run("labels", s.labels)
	t.Run("replaced pods", s.replaced)
	t.Run("pods that leave", s.leaving)
	t.Run("pods that are done", s.done)
	t.Run("policies", s.policies)
	t.Run("cluster policies", func(t *testing.T) { s.clusterPolicies(t, admin) })
	t.Run("nodes", s.nodes)
}

// suite is the state of Suite.
type suite struct {
	*kubernetes.Clientset
	ctx             context.Context
	namespace, node string
	view            *View
	log             *slog.Logger
}

type testWriter struct{ testing.TB }

// Write logs a line.
func (w testWriter) Write(p []byte) (int, error) {
	w.Logf("%s", p)
	return len(p), nil
}

func must[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// pod returns a pod with more fields than a source needs.
func (s *suite) pod(name string) *corev1.Pod {
	grace := int64(0)
	mount := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name, Labels: map[string]string{"app": name},
			Annotations: map[string]string{"note": "a long text"},
		},
		Spec: corev1.PodSpec{
			NodeName: s.node, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &mount,
			Containers: []corev1.Container{
				{Name: "other", Image: "registry.k8s.io/pause:3.10"},
				{Name: "main", Image: "registry.k8s.io/pause:3.10", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}},
			},
		},
	}
}

// create creates a pod; in a new namespace, the server may not let it at first.
func (s *suite) create(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		created, err := s.CoreV1().Pods(s.namespace).Create(s.ctx, p, metav1.CreateOptions{})
		if err == nil {
			return created
		}
		if !apierrors.IsForbidden(err) && !apierrors.IsAlreadyExists(err) || time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *suite) id(name string) model.PodID { return model.PodID{Namespace: s.namespace, Name: name} }

func policy(namespace, name string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"note": "a long text"}},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
}

// prepare creates the objects that exist before the source starts.
func (s *suite) prepare(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Labels: map[string]string{"suite": "1"}}}
	must(s.CoreV1().Namespaces().Create(s.ctx, namespace, metav1.CreateOptions{}))(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node}, Spec: corev1.NodeSpec{PodCIDR: "10.251.7.0/24", PodCIDRs: []string{"10.251.7.0/24"}}}
	node = must(s.CoreV1().Nodes().Create(s.ctx, node, metav1.CreateOptions{}))(t)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.77"}}
	node.ResourceVersion = ""
	must(s.CoreV1().Nodes().UpdateStatus(s.ctx, node, metav1.UpdateOptions{}))(t)
	s.create(t, s.pod("a"))
	must(s.NetworkingV1().NetworkPolicies(s.namespace).Create(s.ctx, policy(s.namespace, "p"), metav1.CreateOptions{}))(t)
}

// remove removes the suite's objects, also after a failure.
func (s *suite) remove(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	background, now := metav1.DeletePropagationBackground, int64(0)
	o := metav1.DeleteOptions{PropagationPolicy: &background, GracePeriodSeconds: &now}
	pods, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, p := range pods.Items {
			_ = s.CoreV1().Pods(s.namespace).Delete(ctx, p.Name, o)
		}
	}
	for _, err := range []error{
		s.CoreV1().Namespaces().Delete(ctx, s.namespace, o),
		s.CoreV1().Nodes().Delete(ctx, s.node, o),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}

func (s *suite) first(t *testing.T) {
	seen := s.view.Sync(t)
	if !seen.Last.InSync {
		t.Error("not in sync")
	}
	p := seen.Pods[s.id("a")]
	if p == nil {
		t.Fatal("the pod is missing")
	}
	if p.Labels["app"] != "a" || p.Spec.NodeName != s.node || len(p.Spec.Containers) != 2 || p.Spec.Containers[1].Ports[0].Name != "web" {
		t.Errorf("the pod lacks something: %+v", p)
	}
	if p.Annotations != nil || p.ManagedFields != nil || p.Spec.Containers[1].Image != "" || p.Spec.Volumes != nil || p.Spec.Tolerations != nil {
		t.Errorf("the pod has more fields than a source needs: %+v", p)
	}
	n := seen.Nodes[s.node]
	if n == nil || len(n.Status.Addresses) != 1 || len(n.Spec.PodCIDRs) != 1 || n.Annotations != nil || n.Spec.Taints != nil {
		t.Errorf("node: %+v", n)
	}
	if ns := seen.Namespaces[s.namespace]; ns == nil || ns.Labels["suite"] != "1" {
		t.Errorf("namespace: %+v", ns)
	}
	np := seen.Policies[path(s.namespace, "p")]
	if np == nil || len(np.Spec.Ingress) != 1 || np.Spec.PodSelector.MatchLabels["app"] != "a" || np.Annotations != nil || np.ManagedFields != nil {
		t.Errorf("policy: %+v", np)
	}
	services, err := s.NetworkingV1().ServiceCIDRs().List(s.ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if seen.Services != nil {
			t.Errorf("prefixes of Services out of nothing: %v", seen.Services)
		}
	case err != nil:
		t.Error(err)
	default:
		want := 0
		for _, c := range services.Items {
			want += len(c.Spec.CIDRs)
		}
		if len(seen.Services) != want || want == 0 {
			t.Errorf("prefixes of Services: %v of %d", seen.Services, want)
		}
	}
}

// setIP sets the address of a pod, or none.
func (s *suite) setIP(t *testing.T, name, ip string) {
	t.Helper()
	p := must(s.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{}))(t)
	p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
	p.ResourceVersion = ""
	must(s.CoreV1().Pods(s.namespace).UpdateStatus(s.ctx, p, metav1.UpdateOptions{}))(t)
}

func (s *suite) addresses(t *testing.T) {
	if seen := s.view.Sync(t); len(seen.Pods[s.id("a")].Status.PodIPs) > 0 {
		t.Fatal("the pod has an address already")
	}
	s.setIP(t, "a", "10.251.7.2")
	if seen := s.view.Sync(t); len(seen.Pods[s.id("a")].Status.PodIPs) != 1 || seen.Pods[s.id("a")].Status.PodIPs[0].IP != "10.251.7.2" {
		t.Errorf("addresses: %v", seen.Pods[s.id("a")].Status.PodIPs)
	}
	// Another pod with the address of one that is still there: both have it.
	s.create(t, s.pod("b"))
	s.setIP(t, "b", "10.251.7.2")
	seen := s.view.Sync(t)
	for _, name := range []string{"a", "b"} {
		if ips := seen.Pods[s.id(name)].Status.PodIPs; len(ips) != 1 || ips[0].IP != "10.251.7.2" {
			t.Errorf("pod %s: %v", name, ips)
		}
	}
}

// heartbeats: changes without effect on the model are not delivered.
func (s *suite) heartbeats(t *testing.T) {
	before := s.view.Sync(t)
	pod, node := before.Pods[s.id("a")], before.Nodes[s.node]
	for i := range 3 {
		p := must(s.CoreV1().Pods(s.namespace).Get(s.ctx, "a", metav1.GetOptions{}))(t)
		p.Annotations = map[string]string{"beat": fmt.Sprint(i)}
		p.ResourceVersion = ""
		must(s.CoreV1().Pods(s.namespace).Update(s.ctx, p, metav1.UpdateOptions{}))(t)
		n := must(s.CoreV1().Nodes().Get(s.ctx, s.node, metav1.GetOptions{}))(t)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: fmt.Sprint("r", i), LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
		n.ResourceVersion = ""
		must(s.CoreV1().Nodes().UpdateStatus(s.ctx, n, metav1.UpdateOptions{}))(t)
	}
	if after := s.view.Sync(t); after.Pods[s.id("a")] != pod || after.Nodes[s.node] != node {
		t.Error("a heartbeat was delivered as a change")
	}
}
