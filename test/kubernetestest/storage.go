package kubernetestest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
)

// object is a stored object. It never changes.
type object = *unstructured.Unstructured

// entry is a change of an object: its old version, and the new one. A new object
// has no old version; for a deleted one, now is its last version.
type entry struct {
	version  uint64
	resource string
	old, now object
	deleted  bool
}

// storage has objects by resource and path, and the log of their changes.
type storage struct {
	version uint64
	objects map[string]map[string]object
	log     []entry
	// compacted is the newest version that the log does not have.
	compacted uint64
}

func newStorage() storage { return storage{version: 1000, objects: map[string]map[string]object{}} }

func path(namespace, name string) string { return namespace + "/" + name }

// put stores an object, and returns it as it is stored.
func (s *storage) put(resource string, o object) object {
	s.version++
	o = o.DeepCopy()
	o.SetResourceVersion(strconv.FormatUint(s.version, 10))
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]object{}
	}
	at := path(o.GetNamespace(), o.GetName())
	old := s.objects[resource][at]
	if o.GetUID() == "" {
		if old != nil {
			o.SetUID(old.GetUID())
		} else {
			o.SetUID(uid(s.version))
		}
	}
	generate(o, old)
	s.objects[resource][at] = o
	s.log = append(s.log, entry{version: s.version, resource: resource, old: old, now: o})
	return o
}

// generate counts the specs that an object had.
func generate(o, old object) {
	switch {
	case old == nil:
		o.SetGeneration(1)
	case reflect.DeepEqual(o.Object["spec"], old.Object["spec"]):
		o.SetGeneration(old.GetGeneration())
	default:
		o.SetGeneration(old.GetGeneration() + 1)
	}
}

// remove deletes an object.
func (s *storage) remove(resource, namespace, name string) {
	at := path(namespace, name)
	old := s.objects[resource][at]
	s.version++
	delete(s.objects[resource], at)
	now := old.DeepCopy()
	now.SetResourceVersion(strconv.FormatUint(s.version, 10))
	s.log = append(s.log, entry{version: s.version, resource: resource, old: old, now: now, deleted: true})
}

// begin deletes an object, or marks it as being deleted for as long as it has
// finalizers.
func (s *storage) begin(resource string, o object) {
	switch {
	case len(o.GetFinalizers()) == 0:
		s.remove(resource, o.GetNamespace(), o.GetName())
	case o.GetDeletionTimestamp() == nil:
		o = o.DeepCopy()
		now := metav1.Now()
		o.SetDeletionTimestamp(&now)
		s.put(resource, o)
	}
}

func (s *storage) get(resource, namespace, name string) object {
	return s.objects[resource][path(namespace, name)]
}

// list returns the selected objects, sorted.
func (s *storage) list(resource string, selected func(object) bool) []object {
	var all []object
	for _, o := range s.objects[resource] {
		if selected(o) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b object) int {
		return strings.Compare(path(a.GetNamespace(), a.GetName()), path(b.GetNamespace(), b.GetName()))
	})
	return all
}

func (s *storage) compact() { s.log, s.compacted = nil, s.version }

// since returns the changes after a version.
func (s *storage) since(resource string, version uint64) []entry {
	var later []entry
	for _, e := range s.log {
		if e.version > version && e.resource == resource {
			later = append(later, e)
		}
	}
	return later
}

// selected returns the filter of a query: its label selector, and its field selector, which has the form a!=x,b!=y.
func selected(query url.Values) func(object) bool {
	matching, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		matching = labels.Nothing()
	}
	return func(o object) bool {
		for term := range strings.SplitSeq(query.Get("fieldSelector"), ",") {
			field, value, unequal := strings.Cut(term, "!=")
			got, _, _ := unstructured.NestedString(o.Object, strings.Split(field, ".")...)
			if unequal && got == value {
				return false
			}
		}
		return matching.Matches(labels.Set(o.GetLabels()))
	}
}

// parse reads an object of JSON or protobuf.
func parse(data []byte) (object, error) {
	if bytes.HasPrefix(data, []byte("k8s\x00")) { // the prefix of the API's protobuf
		o, kind, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("parse the object: %w", err)
		}
		o.GetObjectKind().SetGroupVersionKind(*kind)
		if data, err = json.Marshal(o); err != nil {
			return nil, fmt.Errorf("parse the object: %w", err)
		}
	}
	fields := map[string]any{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("parse the object: %w", err)
	}
	return &unstructured.Unstructured{Object: fields}, nil
}
