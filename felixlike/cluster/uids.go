package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/model"
)

// staticUID is the annotation with the kubelet's UID of a static pod. The API server's mirror
// pod has another UID.
const staticUID = "kubernetes.io/config.hash"

// uids has the UIDs that the kubelet may use for each pod of this node. A recreated pod has
// another UID and may have other labels, so the policy of the datastore's old object does not
// hold for it.
type uids map[model.PodID][]string

// note takes the datastore's pod, and reports whether it is another pod of this node with
// the same name.
func (u uids) note(node string, pod *corev1.Pod) (another bool) {
	id := model.PodID{Namespace: pod.Namespace, Name: pod.Name}
	if pod.Spec.NodeName != node {
		delete(u, id)
		return false
	}
	before := u[id]
	u[id] = slices.DeleteFunc([]string{string(pod.UID), pod.Annotations[staticUID]}, func(s string) bool { return s == "" })
	return !slices.Equal(before, u[id])
}

// are reports whether the pod may have the UID. If one side has no UID, it may.
func (u uids) are(id model.PodID, uid string) bool {
	return uid == "" || len(u[id]) == 0 || slices.Contains(u[id], uid)
}
