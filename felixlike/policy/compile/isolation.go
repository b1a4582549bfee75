package compile

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/tenancy"
	"github.com/felixlike/felixlike/model"
)

// The labels that a namespace has, beside its own, where namespaces are isolated. Their keys are of felixlike.io, and
// labels of objects with them do not count.
const (
	numberLabel = "isolation.felixlike.io/number"
	globalLabel = "isolation.felixlike.io/global"
)

// LabelClass adds the labels of the class of a namespace to its labels.
func LabelClass(labels map[string]string, c tenancy.Class) {
	delete(labels, numberLabel)
	delete(labels, globalLabel)
	if c.Number != 0 {
		labels[numberLabel] = strconv.FormatInt(c.Number, 10)
	}
	if c.Global {
		labels[globalLabel] = "true"
	}
}

// ClusterGroup is a group of all nodes.
type ClusterGroup uint8

const (
	// NodeAddresses are the addresses that nodes own, and those of their gateways.
	NodeAddresses ClusterGroup = iota + 1
	// PodPrefixes are the pod prefixes that nodes own.
	PodPrefixes
)

// MembersOf returns the members that the node has in the group.
func (g ClusterGroup) MembersOf(n *model.Node) []model.Member {
	var all []model.Member
	if g == PodPrefixes {
		for _, p := range n.PodCIDRs {
			all = append(all, model.Member{Prefix: p})
		}
		return all
	}
	for _, f := range model.Families() {
		a, gateway := n.Address(f), n.Gateway(f)
		if a.IsValid() {
			all = append(all, model.AddressMember(a))
		}
		if gateway.IsValid() && gateway != a {
			all = append(all, model.AddressMember(gateway))
		}
	}
	return all
}

func (g ClusterGroup) String() string {
	if g == PodPrefixes {
		return "pod prefixes of all nodes"
	}
	return "all nodes and their gateways"
}

// clusterGroup returns a group of all nodes. No key of another group is equal.
func (n GroupIDs) clusterGroup(g ClusterGroup) Group {
	if g == PodPrefixes {
		return Group{ID: n.id('n', g.String()), Kind: model.Networks, Cluster: g}
	}
	return Group{ID: n.id('a', g.String()), Kind: model.Addresses, Cluster: g}
}

// Isolation returns the policy of a namespace that is isolated, nil for a global one. Packets from pods of its class and of
// global namespaces, and from nodes, go on to the next policy. Others from the pods of the cluster are denied.
func Isolation(namespace string, class tenancy.Class, ids GroupIDs) *Policy {
	if class.Global {
		return nil
	}
	own := Selection{Namespace: namespace, Pods: label.Everything()}
	if class.Number != 0 {
		own = labelled(numberLabel, strconv.FormatInt(class.Number, 10))
	}
	c := compiler{ids: ids}
	// Own pods first: of most packets, the first look-up decides.
	pass := []model.GroupID{
		c.define(ids.addressesOf(own)), c.define(ids.addressesOf(labelled(globalLabel, "true"))), c.define(ids.clusterGroup(NodeAddresses)),
	}
	out := &Policy{
		Model: model.Policy{
			ID: model.IsolationOf(namespace), Precedence: model.PrecedenceBeforeTiers(),
			Ingress: []model.Rule{
				{Name: indexed("ingress", 0), Title: "own, joined and global namespaces, nodes", Action: model.Next, Peers: pass, AnyPort: true},
				{Name: indexed("ingress", 1), Title: "other namespaces", Action: model.Deny, Peers: []model.GroupID{c.define(ids.clusterGroup(PodPrefixes))}, AnyPort: true},
			},
		},
		Targets: []Selection{{Namespace: namespace, Pods: label.Everything()}},
		Ingress: true,
	}
	c.closeCollided(&out.Model)
	out.Groups = c.used(&out.Model)
	return out
}

// labelled selects all pods of the namespaces with a label.
func labelled(key, value string) Selection {
	namespaces, errs := label.Compile(&metav1.LabelSelector{MatchLabels: map[string]string{key: value}}, "")
	if len(errs) > 0 {
		panic(errs.ToAggregate()) // a constant key, and a number or a word
	}
	return Selection{Namespaces: namespaces, Pods: label.Everything()}
}
