package kubernetes

import (
	"bytes"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// serializer decodes protobuf as the one it wraps, but no more than the wanted fields.
// Kinds of which nothing is known, as Status, are decoded whole. So is JSON.
type serializer struct {
	runtime.NegotiatedSerializer
	mediaTypes []runtime.SerializerInfo
}

func newSerializer(wrapped runtime.NegotiatedSerializer, kinds map[string]message) serializer {
	s := serializer{wrapped, slices.Clone(wrapped.SupportedMediaTypes())}
	for i, t := range s.mediaTypes {
		if t.MediaType == runtime.ContentTypeProtobuf {
			stream := *t.StreamSerializer
			stream.Serializer = eventDecoder{stream.Serializer}
			s.mediaTypes[i].StreamSerializer = &stream
			s.mediaTypes[i].Serializer = &objectDecoder{Serializer: t.Serializer, kinds: kinds}
		}
	}
	return s
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s serializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.mediaTypes }

// objectDecoder decodes objects and lists.
type objectDecoder struct {
	runtime.Serializer
	kinds   map[string]message
	buffers sync.Pool
}

// envelope is the prefix of the API's protobuf; a runtime.Unknown follows.
const envelope = "k8s\x00"

// Decode implements runtime.Decoder.
func (d *objectDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	kind, known := d.kinds[kindOf(data)]
	if !known {
		return d.Serializer.Decode(data, defaults, into)
	}
	buffer, _ := d.buffers.Get().(*[]byte)
	if buffer == nil {
		buffer = &[]byte{}
	}
	left, err := all(1).with(2, kind).appendWanted(append((*buffer)[:0], envelope...), data[len(envelope):])
	if err != nil {
		return nil, nil, err
	}
	o, gvk, err := d.Serializer.Decode(left, defaults, into) // it copies the fields that it keeps
	*buffer = left
	d.buffers.Put(buffer)
	return o, gvk, err
}

// kindOf returns the kind of an encoded object, or "".
func kindOf(data []byte) string {
	rest, is := bytes.CutPrefix(data, []byte(envelope))
	if !is {
		return ""
	}
	typeMeta := bytesField(rest, 1)
	return string(bytesField(typeMeta, 2))
}

// eventDecoder decodes the events of a watch without copying their objects, which are
// decoded before the next event is read.
type eventDecoder struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (d eventDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	e, is := into.(*metav1.WatchEvent)
	object := bytesField(bytesField(data, 2), 1)
	if !is || object == nil {
		return d.Serializer.Decode(data, defaults, into)
	}
	*e = metav1.WatchEvent{Type: string(bytesField(data, 1)), Object: runtime.RawExtension{Raw: object}}
	return e, defaults, nil
}
