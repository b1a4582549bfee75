package networkpolicyapi

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// The tests of node peers connect from the clients to the server, which is on its node's network.
const (
	serverNamespace = "network-policy-conformance-forbidden-forrest"
	server          = "centaur-1"
	clientNamespace = "network-policy-conformance-gryffindor"
)

var clientNames = []string{"harry-potter-0", "harry-potter-1"}

// keepApart moves the clients off the server's node. The tests want a Deny of all
// nodes to hold there too, but felixlike never separates a pod from its own node
// (docs/SEMANTICS.md); without this the scheduler decides by chance whether they pass.
func keepApart(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := api.CoreV1().Pods(serverNamespace).Get(ctx, server, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cordon(t, api, s.Spec.NodeName, true)
	for _, name := range clientNames {
		if err := move(ctx, api.CoreV1().Pods(clientNamespace), name, s.Spec.NodeName); err != nil {
			t.Fatalf("move %s off node %s: %v", name, s.Spec.NodeName, err)
		}
	}
	cordon(t, api, s.Spec.NodeName, false)
}

// move deletes a pod that is on the node, and waits until its successor elsewhere is ready.
func move(ctx context.Context, api client.PodInterface, name, node string) error {
	old, err := api.Get(ctx, name, metav1.GetOptions{})
	if err != nil || old.Spec.NodeName != node {
		return err
	}
	if err := api.Delete(ctx, name, *metav1.NewDeleteOptions(0)); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		p, err := api.Get(ctx, name, metav1.GetOptions{})
		return err == nil && p.UID != old.UID && p.Spec.NodeName != node && isReady(p), nil
	})
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// cordon keeps new pods off a node, or no longer.
func cordon(t *testing.T, api kubernetes.Interface, node string, on bool) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, on)
	if _, err := api.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
