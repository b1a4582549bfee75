package status

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/leases"
)

// ConditionAssigned is the type of the condition. True: a node has the address on an interface.
const ConditionAssigned = "Assigned"

// Reasons of the condition.
const (
	ReasonAssigned = "Assigned"
	// ReasonNoAddress: the Egress has no address of its pool. ReasonNoNode: no node has the address. ReasonNotOnInterface: a node is to have it, and its agent could not add it.
	ReasonNoAddress      = "NoAddress"
	ReasonNoNode         = "NoNode"
	ReasonNotOnInterface = "NotOnInterface"
)

// fieldManager owns our part of the status.
const fieldManager = "felixlike"

// Status is the status that an Egress is to have, and when this node writes it.
type Status struct {
	// Kind is that of the object, one of felixlike's own API. Name is its name.
	Kind antrea.Kind
	Name string
	// Usage is all that an ExternalIPPool has. The other fields are of Egresses.
	Usage Usage
	// Node has the address. Both are empty if no node has one. Without a node, only an address of a pool is there.
	Node, Address string
	// Reason and Message are those of the condition.
	Reason, Message string
	// Rank is the place of this node among those that write it.
	Rank int
}

// Usage is the part status.usage of an ExternalIPPool: how many addresses it has, and how many of them Egresses have.
type Usage struct {
	Total int64 `json:"total"`
	Used  int64 `json:"used"`
}

// Options configure Run.
type Options struct {
	Client dynamic.Interface
	// Look returns what this node is to write.
	Look func(ctx context.Context) ([]Status, error)
	Log  *slog.Logger
	// Every is the time between two looks, TakeOver the time that a node waits for the one before it. Most is the number of
	// writes of one look at most.
	Every, TakeOver time.Duration
	Most            int
}

// DefaultOptions has the times of an agent.
func DefaultOptions() Options {
	return Options{Every: 2 * time.Second, TakeOver: 20 * time.Second, Most: 10}
}

// Rights returns the rights that Run needs. The ClusterRole in deploy/ grants them.
func Rights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{antrea.OwnGroupName}, Resources: []string{"egresses", "externalippools"}, Verbs: []string{"get"}},
		{APIGroups: []string{antrea.OwnGroupName}, Resources: []string{"egresses/status", "externalippools/status"}, Verbs: []string{"patch"}},
	}
}

// writer writes the status of Egresses and pools.
type writer struct {
	Options
	// known has the status to write for each object.
	known map[antrea.ID]*entry
	said  leases.Said
}

// entry is a status, since when it is to be so, and when it was last right.
type entry struct {
	status  Status
	since   time.Time
	checked time.Time
}

// Run writes until ctx ends. It returns nil: nothing of it ends an agent.
func Run(ctx context.Context, o Options) error {
	w := &writer{
		Options: o, known: map[antrea.ID]*entry{},
		said: leases.Said{Log: o.Log, What: "write the status of Egresses and ExternalIPPools", Effect: "they are in force without it"},
	}
	ticker := time.NewTicker(o.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		all, err := o.Look(ctx)
		if err != nil {
			return nil // the agent is stopping
		}
		w.look(ctx, all)
	}
}

// look writes each status that has changed, and compares one more with the API server.
func (w *writer) look(ctx context.Context, all []Status) {
	now := time.Now()
	there := map[antrea.ID]bool{}
	for _, s := range all {
		id := antrea.ID{Kind: s.Kind, Name: s.Name}
		there[id] = true
		if e := w.known[id]; e == nil || e.status != s {
			w.known[id] = &entry{status: s, since: now}
		}
	}
	maps.DeleteFunc(w.known, func(id antrea.ID, _ *entry) bool { return !there[id] })
	due := slices.SortedFunc(maps.Values(w.known), func(a, b *entry) int { return a.checked.Compare(b.checked) })
	for i, e := range due {
		fresh := e.checked.IsZero()
		if fresh && now.Sub(e.since) < time.Duration(e.status.Rank)*w.TakeOver {
			continue
		}
		if i == w.Most || !fresh && i > 0 {
			break
		}
		err := w.write(ctx, e.status)
		w.said.Note(ctx, err)
		if err != nil {
			break
		}
		e.checked = time.Now()
	}
}

// write writes a status unless the object has it. An object that is gone needs none.
func (w *writer) write(ctx context.Context, s Status) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	objects := w.Client.Resource(s.Kind.GroupVersion().WithResource(s.Kind.Resource()))
	o, err := objects.Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s %s: %w", s.Kind, s.Name, err)
	}
	want := s.missing(o)
	if want == nil {
		return nil
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("encode the status of %s %s: %w", s.Kind, s.Name, err)
	}
	patch := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": s.Kind.GroupVersion().String(), "kind": s.Kind.String(),
		"metadata": map[string]any{"name": s.Name, "uid": string(o.GetUID())}, "status": status,
	}}
	_, err = objects.ApplyStatus(ctx, s.Name, patch, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it has gone; a new one is checked later
	}
	if err != nil {
		return fmt.Errorf("write the status of %s %s: %w", s.Kind, s.Name, err)
	}
	return nil
}

// missing returns the status that an object does not have yet, nil if it has it.
func (s Status) missing(o *unstructured.Unstructured) any {
	if s.Kind == antrea.KindOwnExternalIPPool {
		have, want := poolFieldsOf(o), &poolFields{Usage: &s.Usage}
		if have.Usage != nil && *have.Usage == s.Usage {
			return nil
		}
		return want
	}
	have := statusOf(o)
	want := s.status(have.condition())
	if have.equal(want) {
		return nil
	}
	return &want
}

// poolFields are those of the status of a pool.
type poolFields struct {
	Usage *Usage `json:"usage"`
}

// poolFieldsOf returns the status of a pool. One that cannot be read is empty.
func poolFieldsOf(o *unstructured.Unstructured) poolFields {
	var f poolFields
	data, err := json.Marshal(o.Object["status"])
	if err != nil || json.Unmarshal(data, &f) != nil {
		return poolFields{}
	}
	return f
}

// fields are those of a status.
type fields struct {
	EgressIP   string             `json:"egressIP"`
	EgressNode string             `json:"egressNode"`
	Conditions []metav1.Condition `json:"conditions"`
}

// statusOf returns the status of an object. One that cannot be read is empty.
func statusOf(o *unstructured.Unstructured) fields {
	var f fields
	data, err := json.Marshal(o.Object["status"])
	if err != nil || json.Unmarshal(data, &f) != nil {
		return fields{}
	}
	return f
}

// condition returns the condition Assigned, or nil without one.
func (f fields) condition() *metav1.Condition {
	for i := range f.Conditions {
		if f.Conditions[i].Type == ConditionAssigned {
			return &f.Conditions[i]
		}
	}
	return nil
}

// equal reports whether our part of two statuses is the same.
func (f fields) equal(o fields) bool {
	a, b := f.condition(), o.condition()
	return f.EgressIP == o.EgressIP && f.EgressNode == o.EgressNode && a != nil && *a == *b
}

// status returns the fields of a status. before is the condition that the object has; it may be nil.
func (s Status) status(before *metav1.Condition) fields {
	c := metav1.Condition{Type: ConditionAssigned, Status: metav1.ConditionFalse, Reason: s.Reason, Message: s.Message, LastTransitionTime: metav1.Now()}
	if s.Reason == ReasonAssigned {
		c.Status = metav1.ConditionTrue
	}
	if before != nil && before.Status == c.Status && !before.LastTransitionTime.IsZero() {
		c.LastTransitionTime = before.LastTransitionTime
	}
	return fields{EgressIP: s.Address, EgressNode: s.Node, Conditions: []metav1.Condition{c}}
}
