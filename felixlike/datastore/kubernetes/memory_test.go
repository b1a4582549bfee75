package kubernetes

import (
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// ordinaryPod is a pod as clusters have them, of some kilobytes.
func ordinaryPod(i int) *corev1.Pod {
	labels := map[string]string{
		"app.kubernetes.io/name": fmt.Sprint("app-", i%500), "app.kubernetes.io/instance": fmt.Sprint("app-", i%500, "-prod"),
		"app.kubernetes.io/component": "backend", "pod-template-hash": fmt.Sprintf("%08x", i%500*7919), "team": fmt.Sprint("team-", i%20),
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("namespace-", i%200), Name: fmt.Sprintf("app-%d-5f7c9d8b6-%05d", i%500, i), UID: types.UID(fmt.Sprintf("01234567-89ab-cdef-0123-%012d", i)),
			ResourceVersion: fmt.Sprint(1000000 + i), Labels: labels,
			Annotations:   map[string]string{"checksum/config": strings.Repeat("0123456789abcdef", 4), "kubernetes.io/config.source": "api"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: &metav1.FieldsV1{Raw: []byte(strings.Repeat(`{"f:status":{}}`, 150))}}},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprint("node-", i%1000), Volumes: make([]corev1.Volume, 4), Tolerations: make([]corev1.Toleration, 4)},
	}
	for c := range 2 {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: fmt.Sprint("c", c), Image: "registry.example.com/team/app:1.2.3", Env: make([]corev1.EnvVar, 20),
			Ports: []corev1.ContainerPort{{Name: []string{"http", "metrics"}[c], ContainerPort: 8080 + int32(c), Protocol: corev1.ProtocolTCP}},
		})
	}
	a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String()
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: a, PodIPs: []corev1.PodIP{{IP: a}}, Conditions: make([]corev1.PodCondition, 5)}
	return p
}

func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkPods measures the memory of 50,000 pods: as a list that has just come, and after delivery.
func BenchmarkPods(b *testing.B) {
	const pods = 50000
	k := &kind{name: kindPod, trim: trimmed(trimPod), decode: decodePod, reported: func(o apiruntime.Object) bool { return o.(*corev1.Pod).Spec.NodeName == "node-1" }}
	var all [kinds]*kind
	all[kindPod] = k
	for b.Loop() {
		s := newState()
		before := heap()
		items := make([]any, pods)
		for i := range items {
			item, err := k.item(ordinaryPod(i))
			if err != nil {
				b.Fatal(err)
			}
			items[i] = item
		}
		list := heap()
		if err := s.stores[kindPod].Replace(items, "2000000"); err != nil {
			b.Fatal(err)
		}
		clear(items)
		out := &batches{log: slog.New(slog.DiscardHandler), deliver: func(datastore.Batch) {}, faults: map[model.ObjectRef][]model.Problem{}, prefixes: map[string][]netip.Prefix{}}
		out.publish(s.take(all))
		kept := heap()
		b.ReportMetric((list-before)/pods, "list-B/pod")
		b.ReportMetric((kept-before)/pods, "kept-B/pod")
		runtime.KeepAlive(s)
	}
}
