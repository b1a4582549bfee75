package policytest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// Stage replaces the policies of a cluster by copies, of which about half are staged.
func Stage(t *rapid.T, c *oracle.Cluster) {
	stage := func(o metav1.Object) {
		o.SetAnnotations(nil)
		if oneIn(t, 2, "staged") {
			o.SetAnnotations(map[string]string{model.EnforceAnnotation: "no"})
		}
	}
	for i, p := range c.Policies {
		c.Policies[i] = p.DeepCopy()
		stage(c.Policies[i])
	}
	for i, p := range c.ClusterPolicies {
		c.ClusterPolicies[i] = p.DeepCopy()
		stage(c.ClusterPolicies[i])
	}
	for i, p := range c.Antrea.Policies {
		copied := *p
		c.Antrea.Policies[i] = &copied
		stage(&copied)
	}
	for i, p := range c.Antrea.ClusterPolicies {
		copied := *p
		c.Antrea.ClusterPolicies[i] = &copied
		stage(&copied)
	}
}
