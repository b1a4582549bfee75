package felixlike

import (
	"cmp"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// trial is what is known of a policy in applies that miss their deadline.
type trial struct {
	// before is the object whose rules were in force before, or nil.
	before *networkingv1.NetworkPolicy
	// noted is the tracker's count of updates with the policy.
	noted uint64
	// why says why it is set aside.
	why         string
	since, next time.Time
	attempts    int
	// tried is the cost of the object that the engine was told last; touched tells that
	// it was tried early, because that had changed.
	tried   time.Duration
	touched bool
}

// turn is one policy.
type turn struct {
	id    model.PodID
	state turnState
	// wanted is the datastore's object, nil after its deletion; told is the object whose
	// rules the engine has, or nil.
	wanted, told *networkingv1.NetworkPolicy
	source       string
	// cost is that of wanted, or of told after a deletion.
	cost time.Duration
	// queued orders those that wait by the time since which they do.
	queued uint64
	// revision is the datastore's with wanted.
	revision uint64
	// delayed tells that the policy had to wait, and has not been programmed since.
	delayed bool
	trial
}

type turnState uint8

const (
	// settled: the backend has programmed it.
	settled turnState = iota
	// elsewhere: it is large and applies to no pod of this node.
	elsewhere
	// waiting for its turn.
	waiting
	// fresh: the engine has its rules, and no apply that succeeded had them.
	fresh
	// suspected: it took part in an apply that missed its deadline, and will be tried.
	suspected
	// refused: it was tried alone and the apply missed its deadline.
	refused
	// excess: it is beyond nodeCost.
	excess
)

func (t *turn) policy() model.PolicyID {
	return model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: t.id.Namespace, Name: t.id.Name}
}

// outdated reports whether the datastore has changed a policy again before an apply that
// succeeded had its rules.
func (t *turn) outdated() bool { return t.state == fresh && t.wanted != t.told }

func (t *turn) compare(o *turn) int {
	return cmp.Or(cmp.Compare(t.cost, o.cost), t.id.Compare(o.id))
}

// hold has the engine keep the rules that it has of the policy. If it has none, it gets a
// policy without rules.
func (t *turn) hold(engine *policy.Engine) {
	if t.told == nil && t.wanted != nil {
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

// take has the engine learn the rules of an earlier object, or none.
func (t *turn) take(engine *policy.Engine, earlier *networkingv1.NetworkPolicy, state turnState) {
	t.told, t.state = earlier, state
	if earlier != nil {
		engine.SetNetworkPolicy(earlier)
		return
	}
	t.hold(engine)
}

func (t *turn) waits() bool {
	return t.state == waiting || t.outdated() || t.state == suspected && t.attempts == 0
}

func (t *turn) olderFirst(o *turn) int {
	return cmp.Or(t.wanted.CreationTimestamp.Compare(o.wanted.CreationTimestamp.Time), t.id.Compare(o.id))
}
