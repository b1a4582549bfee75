package migrate

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// refused reads the output as an agent does, and adds everything that it refuses to the objects of the input.
func (c *conversion) refused(owners map[Ref]int) error {
	text, err := c.result.YAML()
	if err != nil {
		return err
	}
	events, problems := manifests.Parse("output.yaml", text)
	engine := policy.New("")
	for _, e := range events {
		switch set := e.(type) {
		case datastore.NetworkPolicySet:
			problems = append(problems, engine.SetNetworkPolicy(set.Policy)...)
		case datastore.ClusterNetworkPolicySet:
			problems = append(problems, engine.SetClusterNetworkPolicy(set.Policy)...)
		case datastore.AntreaSet:
			engine.SetAntrea(set.Object)
		}
	}
	for _, p := range slices.Concat(problems, engine.AntreaProblems()) {
		at, found := ownerOf(owners, p.Object)
		if !found {
			return p
		}
		c.row(at).lose(p.Field, "felixlike refuses it: %s", p.Reason)
	}
	return nil
}

// ownerOf returns the object of the input that became the object of a problem.
func ownerOf(owners map[Ref]int, of model.ObjectRef) (at int, found bool) {
	for ref, at := range owners {
		kind := ref.Kind
		if group := groupOf(ref.APIVersion); group == antrea.GroupName {
			kind += "." + group
		}
		if kind == of.Kind && ref.Name == of.Name && (ref.Namespace == of.Namespace || ref.Namespace == "" && of.Namespace == metav1.NamespaceDefault) {
			return at, true
		}
	}
	return 0, false
}
