package kubernetes

import (
	"crypto/sha256"
	"fmt"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// key identifies an object of one kind.
type key struct{ namespace, name string }

// item is an object on its way through a reflector: name, version and the trimmed object, encoded. Fifty
// thousand pods are a list of 20 MB as items, and of 500 MB as objects.
type item struct {
	key
	// uid is that of an object which an Event of this node may be about.
	uid     types.UID
	version string
	data    []byte
	sum     sum
	// initialEnd marks the bookmark behind the last object of a list that came as a stream.
	initialEnd bool
}

// sum is the hash of a trimmed object.
type sum [16]byte

func sumOf(uid types.UID, data []byte) sum {
	h := sha256.New()
	h.Write([]byte(uid))
	h.Write([]byte{0})
	h.Write(data)
	return sum(h.Sum(nil)[:len(sum{})])
}

// GetObjectKind, DeepCopyObject and GetObjectMeta implement the interfaces that a reflector requires.
func (i *item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the item itself: items are never changed.
func (i *item) DeepCopyObject() runtime.Object { return i }

// GetObjectMeta returns the metadata that a reflector reads.
func (i *item) GetObjectMeta() metav1.Object {
	m := &metav1.ObjectMeta{Namespace: i.namespace, Name: i.name, ResourceVersion: i.version}
	if i.initialEnd {
		m.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return m
}

// itemList is a page of a list.
type itemList struct {
	metav1.ListMeta
	Items []runtime.Object
}

// GetObjectKind returns no kind.
func (l *itemList) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the list itself: lists are never changed.
func (l *itemList) DeepCopyObject() runtime.Object { return l }

// item trims an object.
func (k *kind) item(o runtime.Object) (*item, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	data, err := k.trim(o)
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", k.name, m.GetNamespace(), m.GetName(), err)
	}
	i := bareItem(m)
	i.data, i.sum = data, sumOf(m.GetUID(), data)
	if k.reported == nil || k.reported(o) {
		i.uid = m.GetUID()
	}
	return i, nil
}

func bareItem(m metav1.Object) *item {
	return &item{
		key: key{unique.Make(m.GetNamespace()).Value(), m.GetName()}, version: m.GetResourceVersion(),
		initialEnd: m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true",
	}
}

// items trims a page.
func (k *kind) items(list runtime.Object) (*itemList, error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	l := &itemList{ListMeta: metav1.ListMeta{
		ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue(), RemainingItemCount: m.GetRemainingItemCount(),
	}}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		i, err := k.item(o)
		if err == nil {
			l.Items = append(l.Items, i)
		}
		return err
	})
	return l, err
}

// event trims the object of a watch's event. An object that cannot be trimmed ends the watch; a new list
// follows.
func (k *kind) event(e watch.Event) watch.Event {
	if e.Type == watch.Error {
		return e
	}
	var i *item
	var err error
	if e.Type == watch.Bookmark || e.Type == watch.Deleted {
		var m metav1.Object
		if m, err = meta.Accessor(e.Object); err == nil {
			i = bareItem(m)
		}
	} else {
		i, err = k.item(e.Object)
	}
	if err != nil {
		status := metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonUnknown, Message: err.Error()}
		return watch.Event{Type: watch.Error, Object: &status}
	}
	e.Object = i
	return e
}
