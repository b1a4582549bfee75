package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/strict"
	"github.com/felixlike/felixlike/model"
)

// decoded is a decoded item: its event, if its kind has events, and its problems.
type decoded struct {
	event    datastore.Event
	problems []model.Problem
	// prefixes are those of a ServiceCIDR.
	prefixes []netip.Prefix
}

func decodeNode(i *item) (decoded, error) {
	n := &corev1.Node{}
	err := n.Unmarshal(i.data)
	return decoded{event: datastore.NodeSet{Node: n}}, err
}

func decodeNamespace(i *item) (decoded, error) {
	n := &corev1.Namespace{}
	err := n.Unmarshal(i.data)
	return decoded{event: datastore.NamespaceSet{Namespace: n}}, err
}

func decodePod(i *item) (decoded, error) {
	p := &corev1.Pod{}
	err := p.Unmarshal(i.data)
	p.Namespace, p.Name = i.namespace, i.name // the strings that the store keeps
	return decoded{event: datastore.PodSet{Pod: p}}, err
}

// decodePolicy returns a policy, or if anything in it is not understood one
// that is closed.
func decodePolicy(i *item) (decoded, error) {
	p := &networkingv1.NetworkPolicy{}
	faults := strict.Decode(i.data, p)
	if len(faults) == 0 {
		p.Namespace, p.Name = i.namespace, i.name
		return decoded{event: datastore.NetworkPolicySet{Policy: p}}, nil
	}
	if strict.Staged(i.data) {
		return withoutStaged(datastore.NetworkPolicyDeleted{Namespace: i.namespace, Name: i.name}, kindPolicy.ref(i.key), faults), nil
	}
	var raw struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(i.data, &raw); err != nil {
		return decoded{}, err
	}
	closed := datastore.NetworkPolicyClosed{Namespace: i.namespace, Name: i.name, PodSelector: strict.Selector(raw.Spec)}
	whom := "the pods it selects are isolated"
	if closed.PodSelector == nil {
		whom = "every pod of the namespace is isolated"
	}
	d := decoded{event: closed}
	for _, f := range faults {
		d.problems = append(d.problems, model.Problem{
			Object: kindPolicy.ref(i.key), Field: f.Field, Reason: f.Reason + "; closed: " + whom,
		})
	}
	return d, nil
}

// withoutStaged leaves out a staged policy that is not understood: it must not be enforced, and what it would deny is not known.
func withoutStaged(deleted datastore.Event, object model.ObjectRef, faults []strict.Fault) decoded {
	d := decoded{event: deleted}
	for _, f := range faults {
		d.problems = append(d.problems, model.Problem{Object: object, Field: f.Field, Reason: f.Reason + "; the policy is staged, and no connection is evaluated by it"})
	}
	return d
}

// decodeClusterPolicy returns a policy in which all that is not understood fails closed.
func decodeClusterPolicy(i *item) (decoded, error) {
	p := &v1alpha2.ClusterNetworkPolicy{}
	faults := strict.Decode(i.data, p)
	if len(faults) > 0 && strict.Staged(i.data) {
		return withoutStaged(datastore.ClusterNetworkPolicyDeleted{Name: i.name}, kindClusterPolicy.ref(i.key), faults), nil
	}
	if len(faults) > 0 {
		p = &v1alpha2.ClusterNetworkPolicy{Spec: strict.ClosedSpec(i.data)}
	}
	p.Name = i.name
	d := decoded{event: datastore.ClusterNetworkPolicySet{Policy: p}}
	for _, f := range faults {
		d.problems = append(d.problems, model.Problem{
			Object: kindClusterPolicy.ref(i.key), Field: f.Field, Reason: f.Reason + "; fails closed",
		})
	}
	return d, nil
}

// decodeAntrea returns the decoder of a kind of Antrea's API. All that is not understood fails closed.
func decodeAntrea(k kindName) func(*item) (decoded, error) {
	return func(i *item) (decoded, error) {
		kind, _ := k.antrea()
		object, faults := strict.DecodeAntrea(kind, i.data)
		object.SetNamespace(i.namespace)
		object.SetName(i.name)
		object.SetUID(i.uid)
		if len(faults) > 0 && kind.IsPolicy() && strict.Staged(i.data) {
			return withoutStaged(datastore.AntreaDeleted{ID: object.ID()}, k.ref(i.key), faults), nil
		}
		d := decoded{event: datastore.AntreaSet{Object: object}}
		for _, f := range faults {
			d.problems = append(d.problems, model.Problem{Object: k.ref(i.key), Field: f.Field, Reason: f.Reason + "; fails closed"})
		}
		return d, nil
	}
}

// decodeService returns a Service, or if it is not understood its problems: the last good version stays in force.
func decodeService(i *item) (decoded, error) {
	s := &corev1.Service{}
	if err := s.Unmarshal(i.data); err != nil {
		return decoded{}, err
	}
	return keepOnFault(kindService, i, strict.Service(s), datastore.ServiceSet{Service: s}), nil
}

// decodeEndpointSlice is decodeService for an EndpointSlice.
func decodeEndpointSlice(i *item) (decoded, error) {
	s := &discoveryv1.EndpointSlice{}
	if err := s.Unmarshal(i.data); err != nil {
		return decoded{}, err
	}
	return keepOnFault(kindEndpointSlice, i, strict.EndpointSlice(s), datastore.EndpointSliceSet{Slice: s}), nil
}

// keepOnFault returns the event of an object without faults.
func keepOnFault(k kindName, i *item, faults []strict.Fault, event datastore.Event) decoded {
	if len(faults) == 0 {
		return decoded{event: event}
	}
	var d decoded
	for _, f := range faults {
		d.problems = append(d.problems, model.Problem{Object: k.ref(i.key), Field: f.Field, Reason: f.Reason + "; the last good version, if there is one, stays in force"})
	}
	return d
}

// decodeServiceCIDR returns the prefixes of a ServiceCIDR.
func decodeServiceCIDR(i *item) (decoded, error) {
	c := &networkingv1.ServiceCIDR{}
	if err := c.Unmarshal(i.data); err != nil {
		return decoded{}, err
	}
	var d decoded
	for at, text := range c.Spec.CIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			d.problems = append(d.problems, model.Problem{
				Object: kindServiceCIDR.ref(i.key), Field: fmt.Sprintf("spec.cidrs[%d]", at), Reason: fmt.Sprintf("%q is no prefix: ignored", text),
			})
			continue
		}
		d.prefixes = append(d.prefixes, p.Masked())
	}
	return d, nil
}
