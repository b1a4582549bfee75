package compile

import "github.com/felixlike/felixlike/model"

const (
	untrackedReason = "not supported, because untracked packets have no connection by which their answers could pass"
	ignored         = ": the annotation is ignored"
)

// nodeAnnotations reads the annotations of a policy for nodes: what they ask for decides where it judges. With one that is not valid it
// selects no node.
func (c *antreaCompiler) nodeAnnotations(annotations map[string]string) {
	if !c.toNodes {
		c.noNodeAnnotations(annotations)
		return
	}
	if value, found := annotations[model.UntrackedAnnotation]; found && value != "false" {
		c.Add(annotationField(model.UntrackedAnnotation), untrackedReason+SelectsNoNode)
		c.selectsNone = true
	}
	if Staged(annotations) {
		c.Add(annotationField(model.EnforceAnnotation), "not supported for nodes: no connection is judged by the policy"+SelectsNoNode)
		c.selectsNone = true
	}
	switch value, found := annotations[model.PreDNATAnnotation]; {
	case !found || value == "false":
	case value == "true":
		c.preDNAT = true
		if len(c.spec.Egress) > 0 {
			c.Add("spec.egress", "not allowed before DNAT, where only ingress is judged: its rules match nothing")
		}
	default:
		c.Add(annotationField(model.PreDNATAnnotation), "unknown value %q: must be true or false"+SelectsNoNode, shown(value))
		c.selectsNone = true
	}
}

// noNodeAnnotations reports annotations that only policies for nodes have. The policy judges pods as without them.
func (c *compiler) noNodeAnnotations(annotations map[string]string) {
	if value, found := annotations[model.PreDNATAnnotation]; found && value != "false" {
		c.Add(annotationField(model.PreDNATAnnotation), "only a ClusterNetworkPolicy of crd.antrea.io for nodes is judged before DNAT"+ignored)
	}
	if value, found := annotations[model.UntrackedAnnotation]; found && value != "false" {
		c.Add(annotationField(model.UntrackedAnnotation), untrackedReason+ignored)
	}
}
