package cases

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// inventory has each object of a cluster by itself, by its kind and name: "pod/shop/web".
type inventory map[string]objects

// set adds or replaces the objects of YAML documents, and returns them.
func (i inventory) set(t *testing.T, text []byte) (all []objects) {
	t.Helper()
	for doc := range strings.SplitSeq("\n"+string(text), "\n---\n") {
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace, Name string }
		}
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatal(err)
		}
		if head.Kind == "" {
			continue
		}
		o := parse(t, []byte(doc))
		key := head.Kind + " "
		if len(o.Antrea.All()) > 0 {
			key = "antrea:" + key
		}
		if head.Metadata.Namespace != "" {
			key += head.Metadata.Namespace + "/"
		}
		i[key+head.Metadata.Name] = o
		all = append(all, o)
	}
	return all
}

// delete deletes the objects that lines name, and returns them.
func (i inventory) delete(t *testing.T, lines []byte) (all []objects) {
	t.Helper()
	for line := range strings.Lines(string(lines)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		o, ok := i[line]
		if !ok {
			t.Fatalf("there is no %s", line)
		}
		delete(i, line)
		all = append(all, o)
	}
	return all
}

// all returns the objects in the order of their names, each by itself.
func (i inventory) all() (all []objects) {
	for _, key := range slices.Sorted(maps.Keys(i)) {
		all = append(all, i[key])
	}
	return all
}

// total returns all objects together.
func (i inventory) total() (o objects) {
	for _, one := range i.all() {
		o = o.plus(one)
	}
	return o
}

// setIn tells an engine of the objects.
func (o objects) setIn(e *policy.Engine) {
	for _, x := range o.Nodes {
		e.SetNode(x)
	}
	for _, x := range o.Namespaces {
		e.SetNamespace(x)
	}
	for _, x := range o.Pods {
		e.SetPod(x)
	}
	for _, x := range o.Policies {
		e.SetNetworkPolicy(x)
	}
	for _, x := range o.ClusterPolicies {
		e.SetClusterNetworkPolicy(x)
	}
	if o.Antrea.Isolation {
		e.SetIsolation(true)
	}
	for _, x := range o.Antrea.All() {
		e.SetAntrea(x)
	}
}

// deleteFrom tells an engine that the objects are gone.
func (o objects) deleteFrom(e *policy.Engine) {
	for _, x := range o.Nodes {
		e.DeleteNode(x.Name)
	}
	for _, x := range o.Namespaces {
		e.DeleteNamespace(x.Name)
	}
	for _, x := range o.Pods {
		e.DeletePod(model.PodID{Namespace: x.Namespace, Name: x.Name})
	}
	for _, x := range o.Policies {
		e.DeleteNetworkPolicy(x.Namespace, x.Name)
	}
	for _, x := range o.ClusterPolicies {
		e.DeleteClusterNetworkPolicy(x.Name)
	}
	for _, x := range o.Antrea.All() {
		e.DeleteAntrea(x.ID())
	}
}
