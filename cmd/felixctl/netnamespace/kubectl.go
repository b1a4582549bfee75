package netnamespace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/felixlike/felixlike/felixlike/tenancy/change"
)

// Access is how the commands reach a cluster.
type Access interface {
	// Kubectl runs kubectl and returns its standard output. An error has its standard error.
	Kubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error)
	// Ask runs a command of felixctl with all agents.
	Ask(ctx context.Context, progress io.Writer, stdin []byte, command ...string) ([]Answer, error)
	// AgentNamespace is the namespace of the agents.
	AgentNamespace() string
}

// Answer is the answer of a node's agent: Out, or a Fault.
type Answer struct {
	Node, Fault string
	Out         []byte
}

// kubectl is a change.Cluster.
type kubectl struct{ Access }

func (k kubectl) Get(ctx context.Context, r change.Resource, name string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	out, err := k.run(ctx, r, name, nil, "get", nameOf(r), name, "-o", "json")
	if err != nil {
		return nil, err
	}
	if err := o.UnmarshalJSON(out); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", r.Resource, name, err)
	}
	return o, nil
}

func (k kubectl) List(ctx context.Context, r change.Resource) ([]unstructured.Unstructured, error) {
	out, err := k.run(ctx, r, "", nil, "get", nameOf(r), "-o", "json")
	if err != nil {
		return nil, err
	}
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON(out); err != nil {
		return nil, fmt.Errorf("read %s: %w", r.Resource, err)
	}
	return list.Items, nil
}

func (k kubectl) Create(ctx context.Context, r change.Resource, o *unstructured.Unstructured) error {
	return k.write(ctx, "create", r, o)
}

func (k kubectl) Update(ctx context.Context, r change.Resource, o *unstructured.Unstructured) error {
	return k.write(ctx, "replace", r, o)
}

func (k kubectl) write(ctx context.Context, verb string, r change.Resource, o *unstructured.Unstructured) error {
	data, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	// Only what differs is ours: validation is for who wrote the rest.
	_, err = k.run(ctx, r, o.GetName(), data, verb, "--validate=false", "-f", "-")
	return err
}

func (k kubectl) Exists(ctx context.Context, namespace string) (bool, error) {
	if faults := validation.IsDNS1123Label(namespace); len(faults) > 0 { // kubectl could take it as a flag
		return false, fmt.Errorf("%q is no name of a namespace: %s", namespace, faults[0])
	}
	out, err := k.Kubectl(ctx, nil, "get", "namespace", namespace, "-o", "name", "--ignore-not-found")
	return len(bytes.TrimSpace(out)) > 0, err
}

// namespaces returns the names of all namespaces.
func (k kubectl) namespaces(ctx context.Context) ([]string, error) {
	out, err := k.Kubectl(ctx, nil, "get", "namespaces", "-o", "name")
	var names []string
	for _, name := range strings.Fields(string(out)) {
		names = append(names, strings.TrimPrefix(name, "namespace/"))
	}
	return names, err
}

// nameOf returns the resource as kubectl names it.
func nameOf(r change.Resource) string { return r.Resource + "." + r.Version + "." + r.Group }

// run starts kubectl, and turns its message into the error of the API server where it knows the message.
func (k kubectl) run(ctx context.Context, r change.Resource, name string, stdin []byte, args ...string) ([]byte, error) {
	out, err := k.Kubectl(ctx, stdin, args...)
	if err == nil {
		return out, nil
	}
	switch text := err.Error(); {
	case strings.Contains(text, "Error from server (Conflict)"):
		return nil, apierrors.NewConflict(r.GroupResource(), name, err)
	case strings.Contains(text, "Error from server (AlreadyExists)"):
		return nil, apierrors.NewAlreadyExists(r.GroupResource(), name)
	case strings.Contains(text, "Error from server (NotFound)") && strings.Contains(text, fmt.Sprintf("%q", name)):
		return nil, apierrors.NewNotFound(r.GroupResource(), name)
	case strings.Contains(text, "doesn't have a resource type") && r == change.NetNamespaces():
		return nil, fmt.Errorf("the cluster has no NetNamespaces: create their definition, deploy/components/netnamespaces-crd (%w)", err)
	}
	return nil, err
}

// decode reads the JSON of an agent.
func decode(a Answer, into any) error {
	if a.Fault != "" {
		return fmt.Errorf("%s: %s", a.Node, a.Fault)
	}
	if err := json.Unmarshal(a.Out, into); err != nil {
		return fmt.Errorf("%s: the answer cannot be read: %w", a.Node, err)
	}
	return nil
}
