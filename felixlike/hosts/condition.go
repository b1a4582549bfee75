package hosts

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/leases"
)

// ConditionType is the condition of a Node with policies for the node: whether they are in force.
const ConditionType corev1.NodeConditionType = "FelixlikeHostPoliciesEnforced"

// Reasons of the condition.
const (
	// ReasonConfirmed goes with status True.
	ReasonConfirmed = "PoliciesConfirmed"
	// ReasonWithdrawn and ReasonOff go with status False, ReasonUnconfirmed and ReasonNotProgrammed with Unknown.
	ReasonWithdrawn     = "PolicyWithdrawn"
	ReasonOff           = "TurnedOff"
	ReasonUnconfirmed   = "NotConfirmed"
	ReasonNotProgrammed = "NotProgrammed"
)

const (
	// conditionEvery is the time between two looks. What two looks in a row agree on is written.
	conditionEvery = 2 * time.Second
	// conditionRead is the time after which a node with policies reads its condition again: others may have removed it.
	conditionRead = 10 * time.Minute
	// conditionTimeout bounds a request, conditionLater the time to the next one after failures.
	conditionTimeout = 5 * time.Second
	conditionLater   = time.Minute
	// maxMessage bounds the message in bytes.
	maxMessage = 1024
)

// Conditions is a datastore that has the conditions of this node.
type Conditions interface {
	// NodeCondition returns nil if the node has no condition of this type.
	NodeCondition(context.Context, corev1.NodeConditionType) (*corev1.NodeCondition, error)
	SetNodeCondition(context.Context, corev1.NodeCondition) error
	RemoveNodeCondition(context.Context, corev1.NodeConditionType) error
}

// keeper keeps the condition of this node up to date. Nothing waits for it.
type keeper struct {
	*Module
	said leases.Said
	// has is the condition as it was last read, at the time read, or written since.
	has  *corev1.NodeCondition
	read time.Time
	// before is what the look before this one wanted, if looked is set.
	before *corev1.NodeCondition
	looked bool
	// wait is the time to the next look.
	wait time.Duration
}

// keepCondition keeps the condition until ctx ends. It returns nil.
func (m *Module) keepCondition(ctx context.Context) error {
	if m.Conditions == nil {
		return nil
	}
	k := &keeper{Module: m, wait: conditionEvery}
	k.said = leases.Said{Log: m.Log, What: "write the condition " + string(ConditionType) + " of this node", Effect: "the policies of the node do not depend on it"}
	for pause(ctx, k.wait) {
		var s control.Status
		begun := false
		if m.view.Do(ctx, func() {
			if begun = m.view.Begun(); begun { // before, nobody knows the policies
				m.status(&s)
			}
		}) != nil {
			return nil // the agent is stopping
		}
		if begun {
			k.look(ctx, conditionOf(s.Hosts))
		}
	}
	return nil
}

// look writes the wanted condition if the node has another one. nil stands for none.
func (k *keeper) look(ctx context.Context, want *corev1.NodeCondition) {
	// The message of an error may differ at each look: that does not put off another status.
	settled := k.looked && (sameCondition(want, k.before) || sameStatus(want, k.before) && !sameStatus(want, k.has))
	k.before, k.looked = want, true
	if !settled {
		k.wait = conditionEvery // also after failures
		return
	}
	bounded, cancel := context.WithTimeout(ctx, conditionTimeout)
	defer cancel()
	err := k.write(bounded, want)
	k.said.Note(ctx, err)
	if err != nil {
		k.wait = min(2*k.wait, conditionLater)
		return
	}
	k.wait = conditionEvery
}

func (k *keeper) write(ctx context.Context, want *corev1.NodeCondition) (err error) {
	if now := time.Now(); k.read.IsZero() || want != nil && now.Sub(k.read) >= conditionRead {
		if k.has, err = k.Conditions.NodeCondition(ctx, ConditionType); err != nil {
			return err
		}
		k.read = now
	}
	switch {
	case sameCondition(want, k.has):
		return nil
	case want == nil:
		err = k.Conditions.RemoveNodeCondition(ctx, ConditionType)
	default:
		now := metav1.Now()
		want.LastHeartbeatTime, want.LastTransitionTime = now, now
		if k.has != nil && k.has.Status == want.Status {
			want.LastTransitionTime = k.has.LastTransitionTime
		}
		err = k.Conditions.SetNodeCondition(ctx, *want)
	}
	if err != nil {
		k.read = time.Time{} // it may have arrived
		return err
	}
	k.has = want
	return nil
}

// sameCondition compares conditions without their times.
func sameCondition(a, b *corev1.NodeCondition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return sameStatus(a, b) && a.Message == b.Message
}

// sameStatus compares conditions without times and messages.
func sameStatus(a, b *corev1.NodeCondition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason
}

// conditionOf returns the condition of a node whose policies have a status, nil if no policy applies to it.
func conditionOf(h *control.Hosts) *corev1.NodeCondition {
	if h == nil || len(h.Policies) == 0 {
		return nil
	}
	list := func(names []string) string { return strings.Join(names, ", ") }
	c := &corev1.NodeCondition{Type: ConditionType, Status: corev1.ConditionFalse}
	switch h.State {
	case control.HostsConfirmed:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, ReasonConfirmed, "in force: "+list(h.Policies)
	case control.HostsWithdrawn:
		inForce := "no policy"
		if len(h.Confirmed) > 0 {
			inForce = "as last confirmed: " + list(h.Confirmed)
		}
		c.Reason, c.Message = ReasonWithdrawn, "withdrawn: "+list(h.Withdrawn)+". In force: "+inForce+". Why: "+h.Reason
	case control.HostsOff:
		c.Reason, c.Message = ReasonOff, h.Reason+". Not in force: "+list(h.Policies)
	case control.HostsNotProgrammed:
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, ReasonNotProgrammed, "not programmed: "+h.Reason+". Wanted: "+list(h.Policies)
	default:
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, ReasonUnconfirmed, "not confirmed yet: "+list(h.Policies)
	}
	if len(c.Message) > maxMessage {
		c.Message = strings.ToValidUTF8(c.Message[:maxMessage-3], "") + "..."
	}
	return c
}
