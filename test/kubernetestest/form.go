package kubernetestest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// form is the form of an answer that the client accepts.
type form struct {
	mediaType string
	protobuf  bool
	// metadata reports that the client wants only the metadata of objects.
	metadata bool
}

func formOf(r *http.Request) form {
	accept, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	f := form{mediaType: runtime.ContentTypeJSON, metadata: strings.Contains(accept, "as=PartialObjectMetadata")}
	if !f.metadata && strings.HasPrefix(accept, runtime.ContentTypeProtobuf) {
		f.mediaType, f.protobuf = runtime.ContentTypeProtobuf, true
	}
	return f
}

// part returns the part of an object that the client wants.
func (f form) part(o object) object {
	if !f.metadata {
		return o
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": o.Object["metadata"],
	}}
}

// encode returns an object in its form.
func (f form) encode(o runtime.Unstructured, kind schema.GroupVersionKind) ([]byte, error) {
	if !f.protobuf {
		return json.Marshal(o.UnstructuredContent())
	}
	typed, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.UnstructuredContent(), typed); err != nil {
		return nil, err
	}
	info, err := f.serializer()
	if err != nil {
		return nil, err
	}
	return runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, kind.GroupVersion()), typed)
}

func (f form) serializer() (runtime.SerializerInfo, error) {
	info, known := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), f.mediaType)
	if !known {
		return info, fmt.Errorf("no serializer for %s", f.mediaType)
	}
	return info, nil
}

// stream sends the events of a watch.
type stream struct {
	form    form
	out     http.ResponseWriter
	frames  io.Writer
	encoder runtime.Encoder
}

func (f form) stream(w http.ResponseWriter, gv schema.GroupVersion) (*stream, error) {
	info, err := f.serializer()
	if err != nil {
		return nil, err
	}
	mediaType := f.mediaType
	if f.protobuf {
		mediaType += ";stream=watch"
	}
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	return &stream{
		form: f, out: w, frames: info.StreamSerializer.NewFrameWriter(w),
		encoder: scheme.Codecs.EncoderForVersion(info.StreamSerializer.Serializer, gv),
	}, nil
}

// send sends one event.
func (s *stream) send(event string, o object) error {
	data, err := s.form.encode(s.form.part(o), o.GroupVersionKind())
	if err != nil {
		return err
	}
	return s.write(event, data, true)
}

// write writes one event with an object that is encoded already.
func (s *stream) write(event string, data []byte, flush bool) error {
	if s.form.protobuf {
		e := &metav1.WatchEvent{Type: event, Object: runtime.RawExtension{Raw: data}}
		var err error
		if data, err = runtime.Encode(s.encoder, e); err != nil {
			return err
		}
	} else {
		data = fmt.Appendf(nil, `{"type":%q,"object":%s}`, event, data)
	}
	if _, err := s.frames.Write(data); err != nil {
		return err
	}
	if flush {
		s.out.(http.Flusher).Flush()
	}
	return nil
}
