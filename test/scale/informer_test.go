package scale

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/felixlike/felixlike/felixlike"
)

// informerVariable makes the process an informer of pods, which keeps what SetTransform leaves.
const informerVariable = "FELIXLIKE_SCALE_INFORMER"

// trimmed keeps the fields of a pod that the agent reads.
func trimmed(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return nil, errors.New("no pod")
	}
	small := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels},
		Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs},
	}
	for _, c := range p.Spec.Containers {
		small.Spec.Containers = append(small.Spec.Containers, corev1.Container{Ports: c.Ports})
	}
	return small, nil
}

// informer runs client-go's informer of pods until it is in sync, and writes its cost.
func informer(socket string) error {
	begin := time.Now()
	felixlike.SetGC()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	scheme := k8sruntime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	client, err := rest.RESTClientFor(&rest.Config{
		Host: "https://api", APIPath: "/api", TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig: rest.ContentConfig{
			GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
			ContentType: k8sruntime.ContentTypeProtobuf,
		},
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	})
	if err != nil {
		return err
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, "pods", "", fields.Everything()), ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{}, Transform: trimmed,
	})
	go controller.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
		return errors.New("the informer is not in sync")
	}
	u := usage{Wall: time.Since(begin), Pods: len(store.ListKeys())}
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return err
	}
	u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	if u.PeakRSS, err = peakRSS(); err != nil {
		return err
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.LiveHeap = m.HeapAlloc
	runtime.KeepAlive(store)
	return json.NewEncoder(os.Stdout).Encode(u)
}

// BenchmarkInformer measures client-go's informer of pods alone, without a policy engine,
// beside a whole agent; run it with -benchtime 1x.
func BenchmarkInformer(b *testing.B) {
	const pods = 50_000
	b.Run("informer", func(b *testing.B) {
		for b.Loop() {
			report(b, start(b, sized(pods), informerVariable+"=1"))
		}
	})
	b.Run("agent", func(b *testing.B) {
		for b.Loop() {
			report(b, measure(b, sized(pods)))
		}
	})
}
