package policytest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/felixlike/datastore/strict"
	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/model"
)

// Input is what the files have.
type Input struct {
	Tests []*Test
	// Objects are the policies, and the parts of a cluster that all tests have.
	Objects control.Objects
	// Notes name objects that are not used.
	Notes []string

	seen map[string]string
}

// Read reads files, the manifests of folders, and standard input for "-". An object that cannot be understood is an error.
func Read(names []string, stdin io.Reader) (*Input, error) {
	if len(names) == 0 {
		return nil, errors.New("no input given: use -f FILE")
	}
	in := &Input{seen: map[string]string{}}
	var errs []error
	err := files.EachManifest(names, stdin, func(path string, data []byte) error {
		found, err := in.tests(path, data)
		errs = append(errs, err, in.manifests(path, data, found))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return in, errors.Join(errs...)
}

// tests reads the tests of a file, also those in Lists, and returns their number. Other documents are for the reader of manifests.
func (in *Input) tests(path string, data []byte) (found int, err error) {
	var errs []error
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return found, errors.Join(errs...)
		} else if err != nil {
			return found, errors.Join(append(errs, located(path, err))...)
		}
		roots := document.Content
		if _, items := member(roots[0], "items"); items != nil && items.Kind == yaml.SequenceNode {
			roots = items.Content
		}
		for _, root := range roots {
			if _, kind := member(root, "kind"); kind == nil || kind.Value != Kind {
				continue
			}
			found++
			t, err := decode(path, root)
			errs = append(errs, err)
			if t != nil {
				errs = append(errs, in.once(Kind+" "+t.Metadata.Name, path))
				in.Tests = append(in.Tests, t)
			}
		}
	}
}

// decode reads a test. All that is not understood is an error.
func decode(path string, root *yaml.Node) (*Test, error) {
	t := &Test{file: path, lines: lines{root}}
	var value any
	if err := root.Decode(&value); err != nil {
		return nil, located(path, err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: a field has no text as its name", path, root.Line)
	}
	var errs []error
	for _, f := range strict.Decode(text, t) {
		errs = append(errs, t.fault(f.Field, "%s", f.Reason))
	}
	switch {
	case len(errs) > 0:
	case t.APIVersion != APIVersion:
		errs = append(errs, t.fault("apiVersion", "%q: must be %s", t.APIVersion, APIVersion))
	case t.Metadata.Name == "":
		errs = append(errs, t.fault("metadata.name", "required"))
	case len(t.Spec.Expect) == 0:
		errs = append(errs, t.fault("spec.expect", "required"))
	default:
		return t, nil
	}
	return nil, errors.Join(errs...)
}

// fault is an error in a field of a test.
func (t *Test) fault(field, format string, args ...any) error {
	return errors.New(printable.String(fmt.Sprintf("%s:%d: %s: %s", t.file, t.lines.of(field), field, fmt.Sprintf(format, args...))))
}

// located returns an error of YAML with the file.
func located(path string, err error) error {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:")
	return errors.New(printable.String(path + ": " + strings.Join(strings.Fields(text), " ")))
}

// once fails for an object that another file has too.
func (in *Input) once(object, path string) error {
	if other, again := in.seen[object]; again {
		return fmt.Errorf("%s: %s: it is in %s too", path, object, other)
	}
	in.seen[object] = path
	return nil
}

// manifests reads the objects of Kubernetes in a file, in which that many tests were found.
func (in *Input) manifests(path string, data []byte, tests int) error {
	events, problems := manifests.Parse(path, data)
	var errs []error
	for _, p := range problems {
		switch kind := p.Object.Kind; {
		case kind == Kind:
			if tests--; tests < 0 {
				errs = append(errs, fmt.Errorf("%s: %s: not found where YAML has it: write it as a document of its own, without aliases", path, p.Object))
			}
		case p.Field == "kind" || preview.IsPolicyKind(kind) || slices.Contains([]string{"Pod", "Namespace", "Node"}, kind):
			errs = append(errs, p)
		default:
			in.Notes = append(in.Notes, p.Error())
		}
	}
	o := &in.Objects
	for _, e := range events {
		var ref model.ObjectRef
		switch set := e.(type) {
		case datastore.NodeSet:
			o.Nodes, ref = append(o.Nodes, set.Node), model.NodeRef(set.Node.Name)
		case datastore.NamespaceSet:
			o.Namespaces, ref = append(o.Namespaces, set.Namespace), model.ObjectRef{Kind: "Namespace", Name: set.Namespace.Name}
		case datastore.PodSet:
			o.Pods, ref = append(o.Pods, set.Pod), model.ObjectRef{Kind: "Pod", Namespace: set.Pod.Namespace, Name: set.Pod.Name}
		case datastore.NetworkPolicySet:
			o.Policies, ref = append(o.Policies, set.Policy), model.ObjectRef{Kind: "NetworkPolicy", Namespace: set.Policy.Namespace, Name: set.Policy.Name}
		case datastore.ClusterNetworkPolicySet:
			o.ClusterPolicies, ref = append(o.ClusterPolicies, set.Policy), model.ObjectRef{Kind: "ClusterNetworkPolicy", Name: set.Policy.Name}
		case datastore.AntreaSet:
			ref = set.Object.ID().Ref()
			if antrea.EgressOf(set.Object) != nil {
				in.Notes = append(in.Notes, fmt.Sprintf("%s: %s: ignored: tests know no source addresses of packets to the outside", path, ref))
				continue
			}
			o.Antrea.Put(set.Object)
		default:
			continue
		}
		errs = append(errs, in.once(ref.String(), path))
	}
	return errors.Join(errs...)
}
