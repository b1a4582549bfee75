package hosts

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"

	"github.com/felixlike/felixlike/felixlike/leases"
)

// LeaseNamespace is the namespace of the Leases that kubelets renew.
const LeaseNamespace = corev1.NamespaceNodeLease

const (
	// leaseDuration is kubelet's default. It renews its Lease four times in this time.
	leaseDuration = 40 * time.Second
	renewals      = 4
)

// Rights returns what the module needs in LeaseNamespace. The Role in deploy/ grants it.
func Rights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"get"}}}
}

// renewal is the last renewal of the Lease of this node. kubelet runs at this node, so its clock is the agent's.
type renewal struct {
	// node is the name of the Lease.
	node string
	// at is zero if the Lease was never renewed.
	at time.Time
	// period is the time between two renewals.
	period time.Duration
}

// patience is the time in which kubelet renews its Lease at least once if nothing hinders it.
func (r renewal) patience() time.Duration { return 2 * r.period }

// limit returns the time after which a trial ends without a renewal.
func (r renewal) limit(within time.Duration) time.Duration { return max(within, r.patience()) }

// next returns the time until the next renewal is expected, at most the period.
func (r renewal) next() time.Duration { return min(r.period, time.Until(r.at.Add(r.period))) }

// notRenewed is the error of a Lease that kubelet has not renewed.
type notRenewed struct{ renewal }

func (e *notRenewed) Error() string {
	return fmt.Sprintf("kubelet has not renewed the Lease %s/%s (last at %s)", LeaseNamespace, e.node, e.at.UTC().Format(time.RFC3339))
}

// unread is the error of a Lease that cannot be read at present.
type unread struct{ error }

func (e *unread) Unwrap() error { return e.error }

// LeaseOf returns a function that reads the Lease of a node, for Options.
func LeaseOf(c dynamic.Interface, node string) func(context.Context) (*leases.Lease, error) {
	all := leases.New(c, LeaseNamespace)
	return func(ctx context.Context) (*leases.Lease, error) { return all.Get(ctx, node) }
}

// nodeLease is the Lease of this node.
type nodeLease struct {
	// get is Options.Lease.
	get func(context.Context) (*leases.Lease, error)
	log *slog.Logger
	// missing logs once that the Lease cannot be read.
	missing leases.Said
	// unrenewed is the beginning of the trial for which it was logged that kubelet does not count.
	unrenewed time.Time
}

func newNodeLease(o Options) nodeLease {
	return nodeLease{get: o.Lease, log: o.Log, missing: leases.Said{
		Log: o.Log, What: "read the Lease that kubelet renews for this node", Effect: "the agent's own connections to the API server alone confirm policies of the node",
	}}
}

// last reads the Lease. It returns nil if there is none or the agent may not read it, which it logs once, and an error of type unread if that fails.
func (l *nodeLease) last(ctx context.Context) (*renewal, error) {
	if l.get == nil {
		return nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	read, err := l.get(bounded)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		l.missing.Note(ctx, err)
		return nil, nil
	}
	if err != nil {
		return nil, &unread{err}
	}
	l.missing.Note(ctx, nil)
	return renewalOf(read), nil
}

func renewalOf(l *leases.Lease) *renewal {
	r := &renewal{node: l.Name, period: l.Duration(leaseDuration) / renewals}
	if l.Spec.RenewTime != nil {
		r.at = l.Spec.RenewTime.Time
	}
	return r
}

// renewed returns nil if kubelet has renewed its Lease since the policies of a trial are in the table, or if it did not before either: then they
// are not the reason.
func (l *nodeLease) renewed(ctx context.Context, t *trial) error {
	r, err := l.last(ctx)
	switch {
	case err != nil || r == nil || r.at.After(t.programmed):
		return err
	case r.at.Before(t.since.Add(-r.patience())):
		if !l.unrenewed.Equal(t.since) {
			l.log.Warn("kubelet did not renew its Lease before policies of the node were tried: the agent's own connections to the API server alone confirm them", "lease", r.node, "renewed", r.at)
		}
		l.unrenewed = t.since
		return nil
	}
	return &notRenewed{*r}
}

// renewedAfter reports whether kubelet has renewed its Lease after a time.
func (l *nodeLease) renewedAfter(ctx context.Context, at time.Time) bool {
	r, err := l.last(ctx)
	return err == nil && r != nil && r.at.After(at)
}

// renewing returns nil if kubelet renews its Lease at present, or if the Lease cannot be read.
func (l *nodeLease) renewing(ctx context.Context) error {
	r, err := l.last(ctx)
	if err == nil && r != nil && time.Since(r.at) > r.patience() {
		err = &notRenewed{*r}
	}
	return err
}
