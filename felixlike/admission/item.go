package admission

import (
	"cmp"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/model"
)

// record is about a policy's applies that missed their deadline.
type record struct {
	// before is the object with the rules that were in force before, or nil.
	before *networkingv1.NetworkPolicy
	// submittedAt is the model's revision with the policy.
	submittedAt uint64
	// why is the reason for the quarantine.
	why string
	isolate.Retry
	// tried is the cost of the object that the engine got last. touched is set if the policy
	// was tried early because its cost fell.
	tried   time.Duration
	touched bool
}

// item is the state of one policy.
type item struct {
	id    model.PodID
	state itemState
	// wanted is the datastore's object, nil after its deletion; submitted is the object with
	// the rules that the engine has, or nil.
	wanted, submitted *networkingv1.NetworkPolicy
	source            string
	// cost is the cost of wanted, or of submitted after a deletion.
	cost time.Duration
	// queued is the policy's place among those that wait: a smaller number waits longer.
	queued uint64
	// revision is the datastore's revision of wanted.
	revision uint64
	// delayed is set from the begin of a wait until the policy is programmed.
	delayed bool
	record
}

type itemState uint8

const (
	// settled: the backend has programmed it.
	settled itemState = iota
	// notLocal: it is large and applies to no pod of this node.
	notLocal
	// waiting for its turn.
	waiting
	// newRules: the engine has its rules, and no successful apply had them.
	newRules
	// unproven: it took part in an apply that missed its deadline, and will be tried.
	unproven
	// refused: it was tried alone and the apply missed its deadline.
	refused
	// deferred: it is beyond nodeCost.
	deferred
)

func (t *item) policy() model.PolicyID { return policyOf(t.id) }

// policyOf returns the identifier of the NetworkPolicy with this namespace and name.
func policyOf(id model.PodID) model.PolicyID {
	return model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: id.Namespace, Name: id.Name}
}

// outdated reports whether the datastore changed a policy again before an apply with its
// rules succeeded.
func (t *item) outdated() bool { return t.state == newRules && t.wanted != t.submitted }

func (t *item) compare(o *item) int {
	return cmp.Or(cmp.Compare(t.cost, o.cost), t.id.Compare(o.id))
}

// hold keeps the policy's rules that the engine has. If the engine has none, it gets a policy
// without rules.
func (t *item) hold(engine *policy.Engine) {
	if t.submitted == nil && t.wanted != nil {
		engine.SetNetworkPolicy(withoutRules(t.wanted))
	}
}

// withoutRules returns a policy that isolates the same pods and allows nothing.
func withoutRules(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	closed := &networkingv1.NetworkPolicy{ObjectMeta: p.ObjectMeta}
	closed.Spec.PodSelector, closed.Spec.PolicyTypes = p.Spec.PodSelector, p.Spec.PolicyTypes
	if len(closed.Spec.PolicyTypes) == 0 {
		closed.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			closed.Spec.PolicyTypes = append(closed.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	return closed
}

// admit gives the engine the rules of an earlier object, or a policy without rules.
func (t *item) admit(engine *policy.Engine, earlier *networkingv1.NetworkPolicy, state itemState) {
	t.submitted, t.state = earlier, state
	if earlier != nil {
		engine.SetNetworkPolicy(earlier)
		return
	}
	t.hold(engine)
}

func (t *item) waits() bool {
	return t.state == waiting || t.outdated() || t.state == unproven && t.Attempts == 0
}

// partial reports whether the engine has other rules of the policy than those written, or still has them after its
// deletion.
func (t *item) partial() bool {
	return t.waits() || t.state == unproven || t.state == refused || t.state == deferred
}

func (t *item) olderFirst(o *item) int {
	return cmp.Or(t.wanted.CreationTimestamp.Compare(o.wanted.CreationTimestamp.Time), t.id.Compare(o.id))
}
