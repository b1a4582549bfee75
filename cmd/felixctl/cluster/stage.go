package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/model"
)

// Commands that stage a policy, and enforce it.
const (
	stageName   = "stage"
	enforceName = "enforce"
)

// StageCommands returns felixctl stage and felixctl enforce, for the cluster that kubectl reaches.
func StageCommands() []*cobra.Command {
	return []*cobra.Command{target{}.stageCommand(), target{}.enforceCommand()}
}

// staging is one run of stage or enforce.
type staging struct {
	target
	namespace string
	yes       bool
}

const (
	stagingHelp = `
For a policy of the cluster, it first shows what that changes, as felixctl preview does, from one node that
answers for the cluster. If a verdict changes, or Services are not judged, it writes nothing without
--yes. It writes by kubectl, with your rights: get and patch the policy, list nodes and pods, and create
pods/exec. If the policy changes after the preview, nothing is written.

Exit codes: 0 done, or it was so already; 1 verdicts would change, and --yes is missing: nothing is
written; 2 the command failed.`
	stagingExample = ` networkpolicy/shop/db-in
`
)

func (t target) stageCommand() *cobra.Command {
	s := &staging{target: t}
	c := &cobra.Command{
		Use:   stageName + " KIND/[NAMESPACE/]NAME | FILE",
		Short: "Stage a policy: it is not enforced, and agents count what it would deny",
		Long: `Stage a policy of the cluster: give it the annotation ` + model.EnforceAnnotation + `: "no". It is not enforced, and
the agents count the connections that it would have denied (policies --staged, drops --staged).
KIND is networkpolicy or clusternetworkpolicy as kubectl takes it, also with its group.

With a FILE (- is standard input) it prints the file with the annotation on its policies, and asks no
cluster. Apply that to create a policy staged. Objects that cannot be staged are left as they are, and
named. A policy for nodes cannot be staged, and a file with one is refused.
` + stagingHelp,
		Example: `  felixctl ` + stageName + stagingExample + `  felixctl stage policy.yaml | kubectl apply -f -
  felixctl stage clusternetworkpolicies.policy.networking.k8s.io/no-dns --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); args[0] == "-" || err == nil && !info.IsDir() {
				return printStagedFile(args[0], c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
			}
			return s.run(c, args[0], true)
		},
	}
	s.flags(c)
	return c
}

func (t target) enforceCommand() *cobra.Command {
	s := &staging{target: t}
	c := &cobra.Command{
		Use:   enforceName + " KIND/[NAMESPACE/]NAME",
		Short: "Enforce a staged policy",
		Long: `Enforce a staged policy of the cluster: remove the annotation ` + model.EnforceAnnotation + `.
KIND is networkpolicy or clusternetworkpolicy as kubectl takes it, also with its group.
` + stagingHelp,
		Example: `  felixctl ` + enforceName + stagingExample,
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return s.run(c, args[0], false) },
	}
	s.flags(c)
	return c
}

func (s *staging) flags(c *cobra.Command) {
	c.Flags().StringVarP(&s.namespace, "namespace", "n", "", "the namespace of the policy (default: that of kubectl's context)")
	c.Flags().BoolVar(&s.yes, "yes", false, "write it although verdicts change")
}

// kindAndName has the kind, the namespace if it is there, and the name of one object. Neither is a flag of kubectl.
var kindAndName = regexp.MustCompile(`^([a-z][-a-z0-9.]*)/(?:([a-z0-9][-a-z0-9]*)/)?([a-z0-9][-a-z0-9.:]*)$`)

// resource returns the resource that kubectl is asked for. It takes a bare kind for one of any group.
func resource(kind string) string {
	switch kind {
	case "networkpolicy", "networkpolicies", "netpol":
		return "networkpolicies." + networkingv1.GroupName
	case "clusternetworkpolicy", "clusternetworkpolicies":
		return "clusternetworkpolicies." + v1alpha2.GroupName
	}
	return kind
}

// nameOf returns the name of a policy in outputs.
func nameOf(u unstructured.Unstructured) string {
	ref := model.ObjectRef{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
	if group := u.GroupVersionKind().Group; group == antrea.GroupName {
		ref.Kind += "." + group
	}
	return ref.String()
}

// run stages a policy, or enforces it.
func (s *staging) run(c *cobra.Command, name string, staged bool) error {
	ctx, out := c.Context(), c.OutOrStdout()
	parts := kindAndName.FindStringSubmatch(preview.WithoutPart(name))
	if parts == nil {
		return fmt.Errorf("%q is no file, and not KIND/NAMESPACE/NAME or KIND/NAME, such as networkpolicy/shop/db-in", name)
	}
	namespace, ofKubectl := cmp.Or(parts[2], s.namespace), resource(parts[1])+"/"+parts[3]
	if s.namespace != "" && namespace != s.namespace {
		return fmt.Errorf("%s is not in the namespace %s", name, s.namespace)
	}
	if err := s.locate(ctx, c.ErrOrStderr()); err != nil {
		return err
	}
	k := s.client
	k.namespace, k.ofContext = namespace, namespace == ""
	var policy unstructured.Unstructured
	if err := k.get(ctx, &policy.Object, ofKubectl); err != nil {
		return err
	}
	if err := canBeStaged(policy.Object); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if parts[2] != "" && policy.GetNamespace() == "" {
		return fmt.Errorf("%s: %s has no namespaces: leave it out", name, policy.GetKind())
	}
	object := nameOf(policy)
	k.namespace, k.ofContext = cmp.Or(policy.GetNamespace(), "default"), false
	annotations := policy.GetAnnotations()
	value, annotated := annotations[model.EnforceAnnotation]
	what, change := "enforced", model.EnforceAnnotation+"-"
	if staged {
		what, change = "staged", model.EnforceAnnotation+"=no"
	}
	if staged && value == "no" || !staged && (!annotated || value == "yes") {
		_, err := fmt.Fprintf(out, "%s is %s already\n", object, what)
		return err
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[model.EnforceAnnotation] = "no"; !staged {
		delete(annotations, model.EnforceAnnotation)
	}
	policy.SetAnnotations(annotations)
	manifest, err := json.Marshal(policy.Object)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	changes, err := s.preview(ctx, c, manifest)
	if err != nil {
		return err
	}
	if changes && !s.yes {
		if _, err := fmt.Fprintf(out, "\nVerdicts change, so %s is not %s: give --yes\n", object, what); err != nil {
			return err
		}
		return report.ErrFaults
	}
	if _, err := k.output(ctx, "annotate", ofKubectl, change, "--overwrite", "--resource-version="+policy.GetResourceVersion()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%s is %s\n", object, what)
	return err
}

// preview has one node show what the policy changes, and reports whether any verdict does.
func (s *staging) preview(ctx context.Context, c *cobra.Command, manifest []byte) (bool, error) {
	at := s.target
	if err := at.chooseNode(ctx, manifest); err != nil {
		return false, err
	}
	code, err := at.passOn(ctx, []string{previewName, "-f", "-"}, Streams{In: bytes.NewReader(manifest), Out: &cleaned{to: c.OutOrStdout()}, Err: &cleaned{to: c.ErrOrStderr()}})
	if err == nil && code > 1 {
		err = errors.New("what it changes is not known, so nothing is written")
	}
	return code == 1, err
}

// canBeStaged returns an error if agents would not stage the object.
func canBeStaged(object map[string]any) error {
	u := unstructured.Unstructured{Object: object}
	if !hasAnnotation(u.GetAPIVersion(), u.GetKind()) {
		return fmt.Errorf("a %s of %s cannot be staged", u.GetKind(), u.GetAPIVersion())
	}
	if u.GetKind() != "ClusterNetworkPolicy" || !strings.HasPrefix(u.GetAPIVersion(), antrea.GroupName+"/") {
		return nil
	}
	var p antrea.ClusterNetworkPolicy
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		return err
	}
	applied := p.Spec.AppliedTo
	for _, r := range slices.Concat(p.Spec.Ingress, p.Spec.Egress) {
		applied = append(applied, r.AppliedTo...)
	}
	if slices.ContainsFunc(applied, func(e antrea.AppliedTo) bool { return e.NodeSelector != nil }) {
		return errors.New("appliedTo has a nodeSelector, and a policy for nodes cannot be staged")
	}
	return nil
}

// hasAnnotation reports whether agents know the annotation on such objects.
func hasAnnotation(apiVersion, kind string) bool {
	switch group, _, _ := strings.Cut(apiVersion, "/"); kind {
	case "NetworkPolicy":
		return group == networkingv1.GroupName || group == antrea.GroupName
	case "ClusterNetworkPolicy":
		return group == v1alpha2.GroupName || group == antrea.GroupName
	}
	return false
}
