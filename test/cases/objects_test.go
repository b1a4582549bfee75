package cases

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// objects are those of a cluster.
type objects struct{ control.Objects }

// parse reads YAML documents.
func parse(t *testing.T, text []byte) (o objects) {
	t.Helper()
	for doc := range strings.SplitSeq("\n"+string(text), "\n---\n") {
		var kind struct{ APIVersion, Kind string }
		unmarshal := func(into any) {
			t.Helper()
			if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
				t.Fatalf("%v in\n%s", err, doc)
			}
		}
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if o.antrea(kind.APIVersion, kind.Kind, unmarshal) {
			continue
		}
		switch kind.Kind {
		case "Node":
			o.Nodes = append(o.Nodes, &corev1.Node{})
			unmarshal(o.Nodes[len(o.Nodes)-1])
		case "Namespace":
			o.Namespaces = append(o.Namespaces, &corev1.Namespace{})
			unmarshal(o.Namespaces[len(o.Namespaces)-1])
		case "Pod":
			o.Pods = append(o.Pods, &corev1.Pod{})
			unmarshal(o.Pods[len(o.Pods)-1])
		case "NetworkPolicy":
			o.Policies = append(o.Policies, &networkingv1.NetworkPolicy{})
			unmarshal(o.Policies[len(o.Policies)-1])
		case "ClusterNetworkPolicy":
			o.ClusterPolicies = append(o.ClusterPolicies, &v1alpha2.ClusterNetworkPolicy{})
			unmarshal(o.ClusterPolicies[len(o.ClusterPolicies)-1])
		case "":
		default:
			t.Fatalf("kind %q is not known here", kind.Kind)
		}
	}
	return o
}

// antrea reads a document of Antrea's API, and reports whether it is one.
func (o *objects) antrea(version, kind string, unmarshal func(any)) bool {
	for _, k := range antrea.Kinds() {
		if version == k.GroupVersion().String() && kind == k.String() {
			object := k.New()
			unmarshal(object)
			o.Antrea.Put(object)
			return true
		}
	}
	return false
}

// plus returns the objects of both.
func (o objects) plus(other objects) objects {
	o.Nodes = slices.Concat(o.Nodes, other.Nodes)
	o.Namespaces = slices.Concat(o.Namespaces, other.Namespaces)
	o.Pods = slices.Concat(o.Pods, other.Pods)
	o.Policies = slices.Concat(o.Policies, other.Policies)
	o.ClusterPolicies = slices.Concat(o.ClusterPolicies, other.ClusterPolicies)
	for _, object := range other.Antrea.All() {
		o.Antrea.Put(object)
	}
	o.Antrea.Isolation = o.Antrea.Isolation || other.Antrea.Isolation
	return o
}

// model returns the agent's model of the objects on a node, where some pods may have been attached before.
func (o objects) model(t *testing.T, node string, attached ...control.Attachment) *control.Model {
	t.Helper()
	like := &control.Model{Settings: control.Settings{Masquerade: true, Isolation: o.Antrea.Isolation}, LogsReported: true, Attachments: attached}
	for _, n := range o.Nodes {
		for _, a := range n.Status.Addresses {
			if n.Name == node {
				like.HostAddresses = append(like.HostAddresses, netip.MustParseAddr(a.Address))
			}
		}
	}
	m, _, err := wanted.FromEvents(wanted.Events(o.Objects), node, like)
	if err != nil {
		t.Fatal(err)
	}
	m.Failsafe = failsafe()
	return m
}

// failsafe returns the failsafe ports of the nodes.
func failsafe() *model.Failsafe {
	return &model.Failsafe{
		In: []model.FailsafePort{
			{PortRange: model.PortRange{Protocol: model.TCP, First: 22, Last: 22}},
			{PortRange: model.PortRange{Protocol: model.TCP, First: 2049, Last: 2049}, Net: netip.MustParsePrefix("192.0.2.0/24")},
			{PortRange: model.PortRange{Protocol: model.TCP, First: 2049, Last: 2049}, Net: netip.MustParsePrefix("2001:db8::/64")},
		},
		Out: []model.FailsafePort{{PortRange: model.PortRange{Protocol: model.TCP, First: 6443, Last: 6443}}},
	}
}

// problems lists the agent's reports on the objects, a line each.
func (o objects) problems(t *testing.T) string {
	t.Helper()
	_, problems, err := wanted.FromEvents(wanted.Events(o.Objects), node, &control.Model{Settings: control.Settings{Isolation: o.Antrea.Isolation}})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range slices.SortedFunc(slices.Values(problems), func(a, b model.Problem) int { return cmp.Compare(a.Error(), b.Error()) }) {
		b.WriteString(p.Error() + "\n")
	}
	return b.String()
}
