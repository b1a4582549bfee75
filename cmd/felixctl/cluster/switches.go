package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

const (
	// switchSelector selects the pods of Open vSwitch, switchContainer is their container.
	switchSelector  = "app.kubernetes.io/name=felixlike,app.kubernetes.io/component=ovs"
	switchContainer = "ovs"
	// versionLabel is the label of a pod with the version of its manifest.
	versionLabel = "app.kubernetes.io/version"
)

// switches returns the pods of Open vSwitch by node. A node that has its own Open vSwitch has
// none.
func (k client) switches(ctx context.Context) (map[string]corev1.Pod, error) {
	var pods corev1.PodList
	if err := k.get(ctx, &pods, "pods", "-l", switchSelector); err != nil {
		return nil, err
	}
	byNode := map[string]corev1.Pod{}
	for _, p := range pods.Items {
		// While one is replaced, a node may have two.
		if _, there := byNode[p.Spec.NodeName]; p.Spec.NodeName != "" && (!there || p.DeletionTimestamp == nil) {
			byNode[p.Spec.NodeName] = p
		}
	}
	return byNode, nil
}
