package kubernetestest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Large is an API server with a cluster of any size that never changes. It keeps no
// object: each is made when it is sent, so the server itself does not limit the size.
// Nodes, namespaces, pods and ServiceCIDRs go as protobuf, NetworkPolicies as JSON.
type Large struct {
	Nodes, Namespaces, Pods, Policies int
	// Unstreamed has lists come in pages instead of as streams.
	Unstreamed bool

	mu                   sync.Mutex
	reads, watches, sent map[string]int
}

// largeVersion is the resource version of all lists.
const largeVersion = "90000000"

// Reads returns the number of times that a client began to read all objects of a resource.
func (l *Large) Reads(plural string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads[plural]
}

// Watches returns the number of times that a client began to watch a resource.
func (l *Large) Watches(plural string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watches[plural]
}

// Sent returns the number of sent bytes of a resource.
func (l *Large) Sent(plural string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent[plural]
}

// count adds to the counters of a resource.
func (l *Large) count(plural string, reads, watches, sent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reads == nil {
		l.reads, l.watches, l.sent = map[string]int{}, map[string]int{}, map[string]int{}
	}
	l.reads[plural] += reads
	l.watches[plural] += watches
	l.sent[plural] += sent
}

// ServeHTTP answers one request.
func (l *Large) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, known := targetOf(r.URL.Path)
	size, object := l.objects(t)
	if !known || object == nil || t.name != "" {
		refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
		return
	}
	if verb(r, t) == "list" {
		l.serveList(w, r, t, size, object)
		return
	}
	l.serveWatch(w, r, t, size, object)
}

// objects returns the number of objects of a resource, and a function that makes one.
func (l *Large) objects(t target) (int, func(int) runtime.Object) {
	switch t.key {
	case "nodes":
		return l.Nodes, func(i int) runtime.Object { return largeNode(i) }
	case "namespaces":
		return l.Namespaces, func(i int) runtime.Object { return largeNamespace(i) }
	case "pods":
		return l.Pods, func(i int) runtime.Object { return l.Pod(i) }
	case "networkpolicies":
		return l.Policies, func(i int) runtime.Object { return l.policy(i) }
	case "servicecidrs":
		return 1, func(int) runtime.Object {
			return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", ResourceVersion: "7"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12"}}}
		}
	}
	return 0, nil
}

// typed encodes an object as the client wants it.
func (f form) typed(o runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	if f.protobuf {
		return protobuf(o, kind)
	}
	o.GetObjectKind().SetGroupVersionKind(kind)
	return json.Marshal(o)
}

// protobuf encodes an object with the envelope that the API has.
func protobuf(o runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	raw, err := o.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		return nil, err
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}, Raw: raw}
	data, err := envelope.Marshal()
	return append([]byte("k8s\x00"), data...), err
}

// serveList answers with a page of a list.
func (l *Large) serveList(w http.ResponseWriter, r *http.Request, t target, size int, object func(int) runtime.Object) {
	query, f := r.URL.Query(), formOf(r)
	from, _ := strconv.Atoi(query.Get("continue"))
	to := size
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil && limit > 0 {
		to = min(from+limit, size)
	}
	meta := metav1.ListMeta{ResourceVersion: largeVersion}
	if to < size {
		meta.Continue = strconv.Itoa(to)
	}
	var list runtime.Object
	switch t.kind {
	case "Node":
		list = &corev1.NodeList{ListMeta: meta, Items: page[corev1.Node](from, to, object)}
	case "Namespace":
		list = &corev1.NamespaceList{ListMeta: meta, Items: page[corev1.Namespace](from, to, object)}
	case "Pod":
		list = &corev1.PodList{ListMeta: meta, Items: page[corev1.Pod](from, to, object)}
	case "ServiceCIDR":
		list = &networkingv1.ServiceCIDRList{ListMeta: meta, Items: page[networkingv1.ServiceCIDR](from, to, object)}
	default:
		list = &networkingv1.NetworkPolicyList{ListMeta: meta, Items: page[networkingv1.NetworkPolicy](from, to, object)}
	}
	data, err := f.typed(list, t.gv.WithKind(t.kind+"List"))
	if err != nil {
		refuse(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	// Clients list one object to find whether the API server has the kind.
	reads := 0
	if from == 0 && query.Get("limit") != "1" {
		reads = 1
	}
	l.count(t.plural, reads, 0, len(data))
	w.Header().Set("Content-Type", f.mediaType)
	_, _ = w.Write(data)
}

func page[T any](from, to int, object func(int) runtime.Object) []T {
	all := make([]T, 0, to-from)
	for i := from; i < to; i++ {
		all = append(all, *object(i).(any).(*T))
	}
	return all
}

// serveWatch sends all objects if they are wanted, and then nothing more.
func (l *Large) serveWatch(w http.ResponseWriter, r *http.Request, t target, size int, object func(int) runtime.Object) {
	f := formOf(r)
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		if l.Unstreamed {
			refuse(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
			return
		}
		l.count(t.plural, 1, 1, 0)
		out, err := f.stream(w, t.gv)
		if err != nil {
			return
		}
		kind := t.gv.WithKind(t.kind)
		for i := range size {
			data, err := f.typed(object(i), kind)
			if err != nil {
				return
			}
			l.count(t.plural, 0, 0, len(data))
			if out.write("ADDED", data, i == size-1) != nil {
				return
			}
		}
		end := object(0)
		m := end.(metav1.Object)
		m.SetResourceVersion(largeVersion)
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		data, err := f.typed(end, kind)
		if err != nil || out.write("BOOKMARK", data, true) != nil {
			return
		}
	} else {
		if _, err := f.stream(w, t.gv); err != nil {
			return
		}
		l.count(t.plural, 0, 1, 0)
	}
	<-r.Context().Done()
}

// Pod returns a pod as clusters have them: of 3.3 kB, 2.3 of which are managed fields.
func (l *Large) Pod(i int) *corev1.Pod {
	app := i / 10
	hash := fmt.Sprintf("%010x", uint64(app)*0x9e3779b97f4a7c15>>24)
	name := fmt.Sprintf("app-%d", app)
	address := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String()
	no, yes, grace := false, true, int64(30)
	now := metav1.Unix(1790000000+int64(i), 0)
	condition := func(t corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", app%max(l.Namespaces, 1)), Name: fmt.Sprintf("%s-%s-%05x", name, hash, i),
			GenerateName: name + "-" + hash + "-", UID: types.UID(fmt.Sprintf("%08x-89ab-4cde-8123-%012x", i*7919, i)),
			ResourceVersion: strconv.Itoa(1000000 + i), CreationTimestamp: now,
			Labels: map[string]string{
				"app.kubernetes.io/name": name, "app.kubernetes.io/instance": name + "-prod", "app.kubernetes.io/component": []string{"backend", "frontend"}[app%2],
				"pod-template-hash": hash, "team": fmt.Sprintf("team-%d", app%max(l.Namespaces, 1)),
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name + "-" + hash, UID: types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", app*7919, app)), Controller: &yes, BlockOwnerDeletion: &yes}},
			ManagedFields:   largeFields(now),
		},
		Spec: corev1.PodSpec{
			NodeName: l.nodeOf(i), ServiceAccountName: "default", RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst,
			TerminationGracePeriodSeconds: &grace, EnableServiceLinks: &no, SchedulerName: corev1.DefaultSchedulerName,
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example.com/" + name + ":1.4.2", ImagePullPolicy: corev1.PullIfNotPresent,
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: quantity.MustParse("100m"), corev1.ResourceMemory: quantity.MustParse("128Mi"),
				}},
				VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			}},
			Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}, HostIP: "192.0.2.1", StartTime: &now, QOSClass: corev1.PodQOSBurstable,
			Conditions: []corev1.PodCondition{condition(corev1.PodScheduled), condition(corev1.PodInitialized), condition(corev1.PodReady), condition(corev1.ContainersReady)},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Ready: true, Started: &yes, Image: "registry.example.com/" + name + ":1.4.2", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			}},
		},
	}
	return pod
}

// largeFields are the managed fields of a pod of a ReplicaSet.
func largeFields(now metav1.Time) []metav1.ManagedFieldsEntry {
	entry := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now,
			FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)},
		}
	}
	return []metav1.ManagedFieldsEntry{entry("kube-controller-manager", "", managedSpec), entry("kubelet", "status", managedStatus)}
}

const managedSpec = `{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/component":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/name":{},"f:pod-template-hash":{},"f:team":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"01234567-89ab-4cde-8123-0123456789ab\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"LOG_LEVEL\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"POD_NAME\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}}},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:readinessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:resources":{".":{},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:securityContext":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`

const managedStatus = `{"f:status":{"f:conditions":{".":{},"k:{\"type\":\"PodScheduled\"}":{"f:observedGeneration":{}},"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:observedGeneration":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:observedGeneration":{},"f:status":{},"f:type":{}},"k:{\"type\":\"PodReadyToStartContainers\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:observedGeneration":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:observedGeneration":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:hostIPs":{},"f:observedGeneration":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.0.0.1\"}":{".":{},"f:ip":{}}},"f:startTime":{}}}`

func (l *Large) nodeOf(i int) string { return fmt.Sprintf("node-%d", i%max(l.Nodes, 1)) }

func largeNamespace(i int) *corev1.Namespace {
	name := fmt.Sprintf("team-%d", i)
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("%08x-1111-4111-8111-111111111111", i)), ResourceVersion: strconv.Itoa(1000 + i), Labels: map[string]string{corev1.LabelMetadataName: name, "tier": tierOf(i)}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}

// tierOf returns the label that a namespace shares with four others.
func tierOf(namespace int) string { return fmt.Sprint("tier-", namespace/5) }

// largeNode is a node with its images, which are the largest part of a node object.
func largeNode(i int) *corev1.Node {
	address := func(a byte) string { return netip.AddrFrom4([4]byte{192, a, byte(i >> 8), byte(i)}).String() }
	cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24).String()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("node-%d", i), UID: types.UID(fmt.Sprintf("%08x-2222-4222-8222-222222222222", i)), ResourceVersion: strconv.Itoa(5000 + i),
			Labels: map[string]string{corev1.LabelHostname: fmt.Sprintf("node-%d", i)}, ManagedFields: largeFields(metav1.Unix(1790000000, 0)),
		},
		Spec:   corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address(168)}}},
	}
	for image := range 50 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("registry.example.com/image-%d@sha256:%s", image, strings.Repeat("0123456789abcdef", 4)), fmt.Sprintf("registry.example.com/image-%d:1.0", image)}, SizeBytes: 1 << 28,
		})
	}
	return n
}

// policy lets the pods of a tier talk to the pods of an application.
func (l *Large) policy(i int) *networkingv1.NetworkPolicy {
	port := intstr.FromString("http")
	tcp := corev1.ProtocolTCP
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", i%max(l.Namespaces, 1)), Name: fmt.Sprintf("app-%d", i), ResourceVersion: strconv.Itoa(50000 + i), ManagedFields: largeFields(metav1.Unix(1790000000, 0))},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", i)}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From: []networkingv1.NetworkPolicyPeer{
					{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/component": "frontend"}}},
					{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tierOf(i)}}},
				},
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}},
			}},
		},
	}
}
