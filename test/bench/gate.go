package bench

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// gate is a lab's node whose agent has an API server as its datastore, with the policy and the label that let the probes
// through.
type gate struct {
	*labNode
	server *kubernetestest.Server
	admin  *kubernetes.Clientset
	// client is the pod that sends the probes, with the label.
	client *corev1.Pod
}

// serveAPI starts an API server with the node's objects and the policies of a point. The node's agent is started anew
// with it, and has programmed all of it.
func (n *labNode) serveAPI(ctx context.Context, at workload.Point) (_ *gate, err error) {
	node, file := n.lab.Node(labNodeName), filepath.Join(n.lab.Dir(), "kubeconfig")
	if err := os.WriteFile(file, kubernetestest.Kubeconfig("agent", apiAddress), 0o600); err != nil {
		return nil, err
	}
	g := &gate{labNode: n}
	if g.server, g.admin, err = kubernetestest.ListenIn(node.Namespace(), apiAddress); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			g.server.Stop()
		}
	}()
	if err := g.create(ctx, at); err != nil {
		return nil, err
	}
	if err := node.StopAgent(); err != nil {
		return nil, err
	}
	node.Settings().Source = []string{"--datastore", "kubernetes", "--kubeconfig", file}
	return g, errors.Join(node.StartAgent(), node.Sync(ctx, clientPod(), serverPod()))
}

// create creates the objects of the node, and the policies.
func (g *gate) create(ctx context.Context, at workload.Point) error {
	state, options := g.lab.State(), metav1.CreateOptions{}
	for _, o := range state.Nodes {
		if _, err := g.admin.CoreV1().Nodes().Create(ctx, o, options); err != nil {
			return err
		}
	}
	for _, o := range state.Namespaces {
		if _, err := g.admin.CoreV1().Namespaces().Create(ctx, o, options); err != nil {
			return err
		}
	}
	for _, o := range state.Pods {
		if o.Name == clientPod().Name {
			o = o.DeepCopy()
			maps.Copy(o.Labels, gateLabels())
			g.client = o
		}
		if _, err := g.admin.CoreV1().Pods(labNamespace).Create(ctx, o, options); err != nil {
			return err
		}
	}
	for _, p := range append(reached(at).Policies(), gatePolicy(true)) {
		if _, err := g.admin.NetworkingV1().NetworkPolicies(labNamespace).Create(ctx, p, options); err != nil {
			return err
		}
	}
	return nil
}

// write makes a change. It returns the moment before.
func (g *gate) write(ctx context.Context, c Change) (before time.Time, err error) {
	// Without a version of the resource, an update has no conflict.
	options := metav1.UpdateOptions{}
	switch c {
	case Denied, Allowed:
		p := gatePolicy(c.allows())
		before = time.Now()
		_, err = g.admin.NetworkingV1().NetworkPolicies(labNamespace).Update(ctx, p, options)
	default:
		pod := g.client.DeepCopy()
		if !c.allows() {
			maps.DeleteFunc(pod.Labels, func(key, _ string) bool { return gateLabels()[key] != "" })
		}
		before = time.Now()
		_, err = g.admin.CoreV1().Pods(labNamespace).Update(ctx, pod, options)
	}
	return before, err
}

func gateLabels() map[string]string { return map[string]string{gateLabel: "open"} }

// gatePolicy always allows the follow-up packets, and allows or denies the probes.
func gatePolicy(open bool) *networkingv1.NetworkPolicy {
	of := reached(workload.Point{})
	p := of.Policy("gate")
	allow := func(first int, from map[string]string) {
		udp, port, last := corev1.ProtocolUDP, intstr.FromInt(first), int32(first+probeTargets-1)
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
			From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: from}}},
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp, Port: &port, EndPort: &last}},
		})
	}
	allow(firstFollowTarget, of.Client)
	if open {
		allow(firstProbeTarget, gateLabels())
	}
	return p
}
