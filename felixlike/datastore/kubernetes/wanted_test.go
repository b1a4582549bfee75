package kubernetes

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializers "k8s.io/apimachinery/pkg/runtime/serializer"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/test/policytest"
)

// full sets every empty field of a value.
func full(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth > 6 {
			return
		}
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		full(v.Elem(), depth+1)
	case reflect.Struct:
		switch v.Type() {
		case reflect.TypeFor[metav1.Time]():
			v.Set(reflect.ValueOf(metav1.Unix(77, 0)))
			return
		case reflect.TypeFor[metav1.MicroTime]():
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				full(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if v.Len() == 0 && depth <= 6 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		}
		for i := range v.Len() {
			full(v.Index(i), depth+1)
		}
	case reflect.Map:
		if v.IsNil() && v.Type() == reflect.TypeFor[map[string]string]() {
			v.Set(reflect.ValueOf(map[string]string{"some": "value", staticUID: "static", metav1.InitialEventsAnnotationKey: "true"}))
		}
	case reflect.String:
		if v.Len() == 0 {
			v.SetString("text")
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(77)
	case reflect.Uint8:
		v.SetUint(7)
	}
}

func codec() (reading, writing runtime.Serializer) {
	scheme, err := newScheme()
	if err != nil {
		panic(err)
	}
	info, _ := runtime.SerializerInfoForMediaType(serializers.NewCodecFactory(scheme).SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return &objectDecoder{Serializer: info.Serializer, kinds: wanted()}, info.Serializer
}

// passes sends an object through the API's protobuf.
func passes(t rapid.TB, o runtime.Object, gvk schema.GroupVersionKind) runtime.Object {
	t.Helper()
	o.GetObjectKind().SetGroupVersionKind(gvk)
	reading, writing := codec()
	data, err := runtime.Encode(writing, o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := runtime.Decode(reading, data)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestWantedFields decodes an object with every field of the API. Trimming gives the
// same result with only the wanted fields as with all; other fields are not decoded.
func TestWantedFields(t *testing.T) {
	host := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true}}
	full(reflect.ValueOf(host).Elem(), 0)
	pod := host.DeepCopy()
	pod.Spec.HostNetwork = false
	done := pod.DeepCopy()
	done.Status.Phase = corev1.PodSucceeded
	node, namespace, cidr := &corev1.Node{}, &corev1.Namespace{}, &networkingv1.ServiceCIDR{}
	svc, slice := &corev1.Service{}, &discoveryv1.EndpointSlice{}
	for _, o := range []any{node, namespace, cidr, svc, slice} {
		full(reflect.ValueOf(o).Elem(), 0)
	}
	core := corev1.SchemeGroupVersion
	for _, c := range []struct {
		object runtime.Object
		kind   schema.GroupVersionKind
		trim   func(runtime.Object) ([]byte, error)
	}{
		{host, core.WithKind("Pod"), trimmed(trimPod)},
		{pod, core.WithKind("Pod"), trimmed(trimPod)},
		{done, core.WithKind("Pod"), trimmed(trimPod)},
		{node, core.WithKind("Node"), trimmed(trimNode)},
		{namespace, core.WithKind("Namespace"), trimmed(trimNamespace)},
		{svc, core.WithKind("Service"), trimmed(trimService)},
		{slice, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), trimmed(trimEndpointSlice)},
		{cidr, networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"), trimmed(trimServiceCIDR)},
	} {
		want, err := c.trim(c.object)
		if err != nil {
			t.Fatal(err)
		}
		read := passes(t, c.object, c.kind)
		got, err := c.trim(read)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != string(got) {
			t.Errorf("%s: trimmed of what is read:\n%q\nof the whole:\n%q", c.kind.Kind, got, want)
		}
		m := read.(metav1.Object)
		if whole := c.object.(metav1.Object); m.GetResourceVersion() != whole.GetResourceVersion() || m.GetUID() != whole.GetUID() || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("%s: metadata: %+v", c.kind.Kind, m)
		}
		if len(m.GetManagedFields()) > 0 || len(m.GetOwnerReferences()) > 0 || m.GetAnnotations()["some"] != "" {
			t.Errorf("%s: decoded for nothing: %+v", c.kind.Kind, m)
		}
	}
}

// TestWantedFieldsOfLists is TestWantedFields for lists and random pods.
func TestWantedFieldsOfLists(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "next"}}
		for _, p := range policytest.Cluster(t).Pods {
			spoil(t, p)
			list.Items = append(list.Items, *p)
		}
		read := passes(t, list, corev1.SchemeGroupVersion.WithKind("PodList")).(*corev1.PodList)
		if diff := cmp.Diff(list.ListMeta, read.ListMeta); diff != "" || len(read.Items) != len(list.Items) {
			t.Fatalf("%d of %d pods: %s", len(read.Items), len(list.Items), diff)
		}
		for i := range list.Items {
			if diff := cmp.Diff(trimPod(&list.Items[i]), trimPod(&read.Items[i]), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("pod %d:\n%s", i, diff)
			}
		}
	})
}

// TestOtherObjectsAreDecodedWhole: kinds without wanted fields, mainly errors.
func TestOtherObjectsAreDecodedWhole(t *testing.T) {
	status := &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: 410, Message: "too old"}
	got := passes(t, status, schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	if diff := cmp.Diff(status.Message, got.(*metav1.Status).Message); diff != "" {
		t.Error(diff)
	}
}

// FuzzWantedFields: no input makes the decoder panic. The plain decoder accepts all that
// it accepts, and both trim to the same object.
func FuzzWantedFields(f *testing.F) {
	_, writing := codec()
	p := &corev1.Pod{}
	full(reflect.ValueOf(p).Elem(), 0)
	p.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	data, err := runtime.Encode(writing, p)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(envelope))
	f.Fuzz(func(t *testing.T, data []byte) {
		reading, writing := codec()
		got, gotErr := runtime.Decode(reading, data)
		want, wantErr := runtime.Decode(writing, data)
		a, isA := got.(*corev1.Pod)
		b, isB := want.(*corev1.Pod)
		if gotErr != nil || wantErr != nil || !isA || !isB {
			return
		}
		if diff := cmp.Diff(trimPod(b), trimPod(a), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s", diff)
		}
	})
}
