package manifests

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore/strict"
	"github.com/felixlike/felixlike/model"
)

// entry is one object of a file: decoded, or known by name only.
type entry struct {
	key key
	// object is nil if the manifest has an error; then problems say which, and
	// selector is a NetworkPolicy's podSelector if that at least is readable, and closed
	// a ClusterNetworkPolicy or an object of Antrea's API in which all that is not understood
	// fails closed.
	object   metav1.Object
	selector *metav1.LabelSelector
	closed   metav1.Object
	// staged is set for a policy with an error that is not enforced, so that nothing fails closed.
	staged   bool
	problems []model.Problem
	version  *version
}

// version is the text of an object as it was read.
type version struct {
	document document
	// read is when it was first read.
	read time.Time
	// restored reports that it is from the state directory.
	restored bool
}

// since says which version it is, for problems.
func (v *version) since() string {
	if v == nil || !v.restored {
		return ""
	}
	return ", which was first read at " + v.read.UTC().Format(time.RFC3339)
}

// content is the parsed content of a file.
type content struct {
	// entries are its objects in the order of the file, each key once.
	entries []entry
	// problems are those of no entry.
	problems []model.Problem
	// unidentified are those of documents that may be any object that the file held before.
	unidentified []model.Problem
	// strangers is how many of them are no policy: they have no field of an object of Kubernetes, or they have no kind and are of an API
	// group that we do not read.
	strangers int
}

// partial reports whether a document could not be identified.
func (c *content) partial() bool { return len(c.unidentified) > 0 }

// unknown reports whether a document that could not be identified may be an object. The values of a chart, and
// other YAML without any field of an object, are not.
func (c *content) unknown() bool { return len(c.unidentified) > c.strangers }

// parser turns the bytes of one file into its content.
type parser struct {
	file string
	// services has Services and EndpointSlices read.
	services bool
	seen     map[key]bool
	content  content
}

// parse reads a file. It never fails as a whole.
func parse(file string, data []byte, services bool) content {
	p := &parser{file: file, services: services, seen: map[key]bool{}}
	for i, d := range documents(file, data) {
		p.document(place{number: i + 1, line: d.line}, d)
	}
	return p.content
}

// place is the position in the file of an object without a name.
type place struct {
	number, line int
	// item is its position in a List, as in "items[3]"; else empty.
	item string
}

func (p place) ref() model.ObjectRef {
	name := fmt.Sprintf("%d (line %d)", p.number, p.line)
	if p.item != "" {
		name += " " + p.item
	}
	return model.ObjectRef{Kind: "document", Name: name}
}

// unidentified reports something that does not say which object it is.
func (p *parser) unidentified(ref model.ObjectRef, field, format string, args ...any) {
	p.content.unidentified = append(p.content.unidentified, p.newProblem(ref, field, format, args...))
}

func (p *parser) problem(ref model.ObjectRef, field, format string, args ...any) {
	p.content.problems = append(p.content.problems, p.newProblem(ref, field, format, args...))
}

func (p *parser) newProblem(ref model.ObjectRef, field, format string, args ...any) model.Problem {
	return model.Problem{Source: p.file, Object: ref, Field: field, Reason: fmt.Sprintf(format, args...)}
}

// document reads one document, or one item of a List.
func (p *parser) document(at place, d document) {
	if d.json == nil {
		p.unidentified(at.ref(), "", "%v", d.err)
		return
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(d.json, &fields); err != nil || fields == nil {
		p.unidentified(at.ref(), "", "not an object")
		return
	}
	name, ok := stringField(fields, "kind")
	if at.item == "" && isStranger(fields) {
		p.content.strangers++
		p.unidentified(at.ref(), "", "not an object of Kubernetes: it has no apiVersion, kind, metadata, spec or items")
		return
	}
	if !ok || name == "" {
		if _, given := fields["kind"]; !given && d.err == nil && (isForeign(fields) || isChart(fields)) {
			p.content.strangers++
		}
		p.unidentified(at.ref(), "kind", "required, and must be a string")
		return
	}
	version, _ := stringField(fields, "apiVersion")
	if name == "List" {
		p.list(at, d, name, "v1", nil)
		return
	}
	if k, known := p.parseKind(version, strings.TrimSuffix(name, "List")); known && strings.HasSuffix(name, "List") {
		p.list(at, d, name, k.apiVersion(), &k)
		return
	}
	k, known := p.parseKind(version, name)
	if !known {
		ref := readableRef(name, fields, at)
		if hint := replacedBy(name); hint != "" {
			p.problem(ref, "kind", "%s is not supported: %s", name, hint)
		} else if isIgnoredKind(name) || d.err == nil && isForeign(fields) {
			p.problem(ref, "", "ignored: kind not used")
		} else {
			p.unidentified(ref, "kind", "unknown kind %q: ignored", name)
		}
		return
	}
	p.object(at, d, k, fields)
}

// parseKind returns the kind of that name in an API, or false if there is no such kind, or its objects are not read. Other APIs have
// Services, too.
func (p *parser) parseKind(apiVersion, name string) (kind, bool) {
	k, known := parseKind(apiVersion, name)
	if known && k.ofServices() {
		group, _, hasGroup := strings.Cut(apiVersion, "/")
		known = p.services && (k == kindEndpointSlice && group == discoveryv1.GroupName || k == kindService && !hasGroup)
	}
	return k, known
}

// isStranger reports whether a document has no field of an object.
func isStranger(fields map[string]json.RawMessage) bool {
	for _, name := range []string{"apiVersion", "kind", "metadata", "spec", "items"} {
		if _, given := fields[name]; given {
			return false
		}
	}
	return true
}

// isChart reports whether a document is the Chart.yaml of a Helm chart, which has an apiVersion and no kind.
func isChart(fields map[string]json.RawMessage) bool {
	for _, name := range []string{"metadata", "spec", "items"} {
		if _, given := fields[name]; given {
			return false
		}
	}
	version, _ := stringField(fields, "apiVersion")
	return version == "v2"
}

// list reads the items of a List, or of the list of one kind, such as a NetworkPolicyList. Items of such a list need
// no apiVersion and kind, as in the answers of an API server.
func (p *parser) list(at place, d document, name, version string, of *kind) {
	ref := model.ObjectRef{Kind: name, Name: at.ref().String()}
	if at.item != "" {
		p.unidentified(ref, "kind", "a %s inside a List is not supported", name)
		return
	}
	if d.err != nil {
		p.unidentified(ref, "", "%v", d.err)
		return
	}
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ListMeta   `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}
	for _, f := range strict.Decode(d.json, &list) {
		p.unidentified(ref, f.Field, "%s", f.Reason)
	}
	if list.APIVersion != version {
		p.unidentified(ref, "apiVersion", "%q: must be %s", list.APIVersion, version)
	}
	for i, item := range list.Items {
		at.item = fmt.Sprintf("items[%d]", i)
		if of != nil {
			item = withKind(item, *of)
		}
		p.document(at, document{line: d.line, json: item})
	}
}

// withKind adds the apiVersion and kind to an item that has no kind.
func withKind(item json.RawMessage, k kind) json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(item, &fields); err != nil || fields == nil || fields["kind"] != nil {
		return item
	}
	fields["apiVersion"], _ = json.Marshal(k.apiVersion())
	name, _, _ := strings.Cut(k.String(), ".")
	fields["kind"], _ = json.Marshal(name)
	whole, err := json.Marshal(fields)
	if err != nil {
		return item
	}
	return whole
}

// object reads an object of a kind that we use.
func (p *parser) object(at place, d document, k kind, fields map[string]json.RawMessage) {
	id, field, reason := identify(k, fields)
	if reason != "" {
		p.unidentified(readableRef(k.String(), fields, at), field, "%s", reason)
		return
	}
	if p.seen[id] {
		p.problem(id.ref(), "", "defined twice in this file: the first is in force")
		return
	}
	p.seen[id] = true
	e := entry{key: id, version: &version{document: d}}
	fail := func(field, format string, args ...any) {
		e.problems = append(e.problems, model.Problem{
			Source: p.file, Object: id.ref(), Field: field, Reason: fmt.Sprintf(format, args...),
		})
	}
	version, isString := stringField(fields, "apiVersion")
	if !isString || version != k.apiVersion() {
		fail("apiVersion", "%q: must be %s", version, k.apiVersion())
	}
	if d.err != nil {
		fail("", "%v", d.err)
	}
	object, faults := decode(k, d.json)
	for _, f := range faults {
		fail(f.Field, "%s", f.Reason)
	}
	if len(e.problems) == 0 {
		object.SetNamespace(id.namespace)
		setDefaults(object)
		e.object = object
	} else if d.err == nil && k.isPolicy() && strict.Staged(d.json) {
		e.staged = true
	} else if k == kindNetworkPolicy && d.err == nil {
		e.selector = strict.Selector(fields["spec"])
	} else if k == kindClusterNetworkPolicy {
		e.closed = closedClusterPolicy(id.name, d.json, d.err == nil && version == k.apiVersion())
	} else if a, is := k.antrea(); is {
		e.closed = closedAntrea(a, id, d.json, d.err == nil && version == k.apiVersion())
	}
	p.content.entries = append(p.content.entries, e)
}

// decode decodes an object of a kind that we use.
func decode(k kind, data []byte) (metav1.Object, []strict.Fault) {
	if a, is := k.antrea(); is {
		return strict.DecodeAntrea(a, data)
	}
	object := newObject(k)
	faults := strict.Decode(data, object)
	if len(faults) > 0 || !k.ofServices() {
		return object, faults
	}
	setDefaults(object)
	if s, is := object.(*corev1.Service); is {
		return object, strict.Service(s)
	}
	return object, strict.EndpointSlice(object.(*discoveryv1.EndpointSlice))
}

// closedAntrea returns an object of Antrea's API with an error, in which all that is not understood
// fails closed. If the document cannot be trusted, a policy denies everything to its pods.
func closedAntrea(k antrea.Kind, id key, data []byte, trusted bool) metav1.Object {
	object := strict.ClosedAntrea(k, data)
	if !trusted {
		strict.CloseAntrea(object)
	}
	object.SetNamespace(id.namespace)
	object.SetName(id.name)
	return object
}

// closedClusterPolicy returns a policy with an error, in which all that is not understood
// fails closed. If the document cannot be trusted, it denies everything to its subject.
func closedClusterPolicy(name string, data []byte, trusted bool) *v1alpha2.ClusterNetworkPolicy {
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: strict.ClosedSpec(data)}
	if !trusted {
		strict.Close(&p.Spec)
	}
	return p
}

// identify reads the object's identity, and ignores errors elsewhere. If it fails, it returns the field and
// the reason.
func identify(k kind, fields map[string]json.RawMessage) (id key, field, reason string) {
	meta := map[string]json.RawMessage{}
	if raw, given := fields["metadata"]; given {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return key{}, "metadata", "must be an object"
		}
	}
	name, isString := stringField(meta, "name")
	if !isString {
		return key{}, "metadata.name", notAString(meta["name"])
	}
	if wrong := k.checkName(name); wrong != "" {
		return key{}, "metadata.name", wrong
	}
	namespace, isString := stringField(meta, "namespace")
	switch {
	case !isString:
		return key{}, "metadata.namespace", notAString(meta["namespace"])
	case !k.namespaced() && namespace != "":
		return key{}, "metadata.namespace", fmt.Sprintf("a %s has no namespace", k)
	case k.namespaced() && namespace == "":
		namespace = metav1.NamespaceDefault
	}
	if k.namespaced() {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			return key{}, "metadata.namespace", strings.Join(wrong, "; ")
		}
	}
	return key{kind: k, namespace: namespace, name: name}, "", ""
}

func notAString(raw json.RawMessage) string {
	if text := string(raw); text == "true" || text == "false" {
		return "must be a string" + strict.QuoteHint
	}
	return "must be a string"
}

// readableRef names an object by its readable fields.
func readableRef(kind string, fields map[string]json.RawMessage, at place) model.ObjectRef {
	var meta map[string]json.RawMessage
	if err := json.Unmarshal(fields["metadata"], &meta); err != nil {
		meta = nil
	}
	name, _ := stringField(meta, "name")
	namespace, _ := stringField(meta, "namespace")
	if name == "" {
		name = at.ref().String()
	}
	return model.ObjectRef{Kind: kind, Namespace: namespace, Name: name}
}

func newObject(k kind) metav1.Object {
	switch k {
	case kindNode:
		return &corev1.Node{}
	case kindNamespace:
		return &corev1.Namespace{}
	case kindPod:
		return &corev1.Pod{}
	case kindClusterNetworkPolicy:
		return &v1alpha2.ClusterNetworkPolicy{}
	case kindService:
		return &corev1.Service{}
	case kindEndpointSlice:
		return &discoveryv1.EndpointSlice{}
	}
	return &networkingv1.NetworkPolicy{}
}
