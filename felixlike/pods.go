package felixlike

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// reasonTimeout bounds how long the loop is asked what a waiter has waited for.
const reasonTimeout = time.Second

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

// LocalNode returns this node, once the datastore has told of it and all has been
// programmed for once: before that there is no bridge to attach pods to.
func (d *Driver) LocalNode(ctx context.Context) (*model.Node, error) {
	var node *model.Node
	_, err := d.wait(ctx, func() (bool, error) {
		node = d.tracker.nodes[d.cfg.Node]
		return d.inSync() && d.programmed > 0, nil
	})
	if err != nil {
		return nil, d.because(err, func() string { return strings.Join(d.readiness().Missing, "; ") })
	}
	return node, nil
}

// WaitPod waits until this very attachment is known, so is the pod (the one with
// the UID, if that is not empty), and its policy is in force. If it ends without,
// the error says what was missing.
func (d *Driver) WaitPod(ctx context.Context, want *model.Attachment, uid string) error {
	_, err := d.wait(ctx, func() (bool, error) {
		if d.unseen(want, uid) != "" {
			return false, nil
		}
		return d.podsReady([]model.PodID{want.Pod})
	})
	if err != nil {
		return d.because(err, func() string { return cmp.Or(d.unseen(want, uid), d.unprogrammed(want.Pod)) })
	}
	return nil
}

// unseen returns what is not known of a pod that is being added, if anything.
func (d *Driver) unseen(want *model.Attachment, uid string) string {
	have := d.tracker.attachments[want.Pod]
	switch unknown := d.unknown(); {
	case len(unknown) > 0:
		return strings.Join(unknown, "; ")
	case have == nil || have.Interface != want.Interface || have.Sandbox != want.Sandbox || have.OFPort != want.OFPort ||
		!slices.Equal(have.Addresses, want.Addresses):
		return "the database of Open vSwitch has not told of interface " + want.Interface
	case d.engine.AwaitsNamespace(want.Pod.Namespace):
		return "the datastore has not told of namespace " + want.Pod.Namespace + ", which ClusterNetworkPolicies may select"
	case !d.uids.are(want.Pod, uid):
		return "the datastore has another pod of this name: UID " + strings.Join(d.uids[want.Pod], ", ") + ", not " + uid
	}
	return ""
}

// unprogrammed returns why the policy of a pod is not in force, if it is not.
func (d *Driver) unprogrammed(id model.PodID) string {
	switch state, reason := d.tracker.state(id, d.quarantine.view().closed); {
	case state == control.EndpointProgrammed:
		return ""
	case state == control.EndpointClosed:
		return reason
	case d.lastApply.Error != "":
		return "programming the dataplane failed: " + d.lastApply.Error
	}
	return "its policy is still being programmed"
}

// because adds to the error of a wait that ended what it has waited for.
func (d *Driver) because(err error, reason func() string) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), reasonTimeout)
	defer cancel()
	var text string
	if d.ask(ctx, func() { text = reason() }) != nil {
		return fmt.Errorf("%w: the agent's loop does not answer", err)
	}
	if text == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, text)
}

// Available returns why no pod can be added to this node now, or nil.
func (d *Driver) Available(ctx context.Context) error {
	if missing := d.Ready(ctx).Missing; len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	return nil
}

// Added notes how long a pod that was added has waited for its policy.
func (d *Driver) Added(waited time.Duration) { d.metrics.PodAdded(waited) }
