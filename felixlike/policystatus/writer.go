package policystatus

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/felixlike/leases/elect"
	"github.com/felixlike/felixlike/internal/backoff"
)

// fieldManager owns our condition.
const fieldManager = "felixlike"

// writer writes the conditions of all policies.
type writer struct {
	policies dynamic.ResourceInterface
	timing   Timing
	limit    flowcontrol.RateLimiter
	log      *slog.Logger
	read     leases.Said
	write    leases.Said
	// wrote has the last written or refused condition of each policy.
	wrote map[types.UID]wrote
	retry time.Duration
	// variant is Options.Variant.
	variant string
}

// wrote is a condition and when it was written.
type wrote struct {
	condition metav1.Condition
	at        time.Time
}

func newWriter(o Options) *writer {
	return &writer{
		policies: o.Client.Resource(schema.GroupVersion(v1alpha2.GroupVersion).WithResource("clusternetworkpolicies")),
		timing:   o.Timing, limit: flowcontrol.NewTokenBucketRateLimiter(o.Timing.Rate, o.Timing.Burst), log: o.Log,
		read:  leases.Said{Log: o.Log, What: "read ClusterNetworkPolicies to write their status", Effect: effect},
		write: leases.Said{Log: o.Log, What: "write the status of ClusterNetworkPolicies", Effect: effect},
		wrote: map[types.UID]wrote{}, variant: o.Variant,
	}
}

// run writes conditions until ctx ends.
func (w *writer) run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	store, end := leases.Watch(ctx, w.policies, "", &w.read, signal)
	defer end()
	if store == nil {
		return
	}
	for {
		var later <-chan time.Time
		if wait := w.pass(ctx, store); wait > 0 {
			later = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-later:
		case <-changed:
			if !elect.Sleep(ctx, w.timing.Gather) {
				return
			}
		}
	}
}

// pass writes the conditions that are not right, and returns when to look again; 0 stands
// for the next change.
func (w *writer) pass(ctx context.Context, store cache.Store) time.Duration {
	all := w.judgeAll(store)
	var next time.Duration
	soon := func(d time.Duration) {
		if next == 0 || d < next {
			next = max(d, time.Millisecond)
		}
	}
	there := map[types.UID]bool{}
	for _, p := range all {
		there[p.object.GetUID()] = true
	}
	for i := range all {
		p := &all[i]
		uid := p.object.GetUID()
		var before *judged
		if i > 0 {
			before = &all[i-1]
		}
		want := p.condition(before)
		if w.variant != "" {
			want = p.notInForce(w.variant)
		}
		have, found := present(p.object)
		if found && same(have, want) {
			continue
		}
		if last, known := w.wrote[uid]; known && same(last.condition, want) {
			if left := time.Until(last.at.Add(w.timing.Again)); left > 0 {
				soon(left)
				continue
			}
		}
		want.LastTransitionTime = metav1.Now()
		if found && have.Status == want.Status && !have.LastTransitionTime.IsZero() {
			want.LastTransitionTime = have.LastTransitionTime
		}
		if w.limit.Wait(ctx) != nil {
			return 0
		}
		if err := w.apply(ctx, p.object, want); err != nil {
			w.retry = backoff.Next(w.retry, w.timing.Retry, w.timing.RetryMost)
			soon(w.retry)
			break
		}
		w.retry = 0
	}
	for uid := range w.wrote {
		if !there[uid] {
			delete(w.wrote, uid)
		}
	}
	return next
}

// judgeAll returns the policies of the store in the order in which they are evaluated.
func (w *writer) judgeAll(store cache.Store) []judged {
	var all []judged
	for _, o := range store.List() {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		p, err := judge(u)
		if err != nil { // it came as JSON
			w.log.Debug("cannot judge a policy", "error", err)
			continue
		}
		all = append(all, p)
	}
	slices.SortFunc(all, judged.compare)
	return all
}

// apply writes a condition. It returns an error if others cannot be written either. A
// policy that is gone, or that another one has replaced, needs none.
func (w *writer) apply(ctx context.Context, o *unstructured.Unstructured, c metav1.Condition) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
	if err != nil {
		return err
	}
	patch := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha2.GroupVersion.String(), "kind": "ClusterNetworkPolicy",
		"metadata": map[string]any{"name": o.GetName(), "uid": string(o.GetUID())},
		"status":   map[string]any{"conditions": []any{fields}},
	}}
	ctx, cancel := context.WithTimeout(ctx, w.timing.Lease/3)
	defer cancel()
	_, err = w.policies.ApplyStatus(ctx, o.GetName(), patch, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		w.log.Debug("the policy has gone: its status is not written", "policy", o.GetName(), "error", err)
		err = nil
	case concernsObject(err):
		level := slog.LevelWarn
		if last, known := w.wrote[o.GetUID()]; known && same(last.condition, c) {
			level = slog.LevelDebug
		}
		w.log.Log(ctx, level, "the API server refuses the status of a policy", "policy", o.GetName(), "error", err)
		err = nil
	default:
		w.write.Note(ctx, err)
	}
	if err == nil {
		w.wrote[o.GetUID()] = wrote{condition: c, at: time.Now()}
	}
	return err
}

// concernsObject reports whether the API server, or a webhook that it asks, refuses the
// one object: others may be written.
func concernsObject(err error) bool {
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsInternalError(err):
		return true
	}
	// Without the right to write, the message is another: "User ... cannot patch".
	return apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "denied the request") || strings.Contains(err.Error(), "denied request"))
}
