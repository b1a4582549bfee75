package felixlike

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/model"
)

// staticUID is the annotation with a static pod's UID as the kubelet knows it: the
// pod that the API server shows for it has a UID of its own.
const staticUID = "kubernetes.io/config.hash"

// uids knows by which UIDs the kubelet may know a pod of this node. A pod that is
// made anew under its old name has another UID, and other labels: policy for it is
// not what the datastore's old object says.
type uids map[model.PodID][]string

// note takes a pod as the datastore has it now, and reports whether it is another one
// of this node than before.
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

// are reports whether the pod may have the UID. Where one of both sides tells
// none, nothing speaks against it.
func (u uids) are(id model.PodID, uid string) bool {
	return uid == "" || len(u[id]) == 0 || slices.Contains(u[id], uid)
}
