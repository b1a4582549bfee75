package deploy

import (
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/felixlike/hosts"
	"github.com/felixlike/felixlike/felixlike/tenancy/change"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// admitted are the resources of the manifest that TestTokensSpeakForTheirNode needs, by kind.
var admitted = map[string]string{
	"Namespace": "/v1/namespaces", "ServiceAccount": "/v1/serviceaccounts", "CustomResourceDefinition": "apiextensions.k8s.io/v1/customresourcedefinitions",
	"ClusterRole": "rbac.authorization.k8s.io/v1/clusterroles", "ClusterRoleBinding": "rbac.authorization.k8s.io/v1/clusterrolebindings",
	"Role": "rbac.authorization.k8s.io/v1/roles", "RoleBinding": "rbac.authorization.k8s.io/v1/rolebindings",
	"ValidatingAdmissionPolicy":        "admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}

// TestTokensSpeakForTheirNode: on a real API server with the manifest, the token of an agent writes what its agent writes, and nothing in
// the name of another node.
func TestTokensSpeakForTheirNode(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	admin := kubernetestest.StartAPIServer(t)
	all, err := dynamic.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "felixlike-system"
	in := func(c dynamic.Interface, kind, namespace string) dynamic.ResourceInterface {
		part := strings.Split(admitted[kind], "/")
		r := c.Resource(schema.GroupVersionResource{Group: part[0], Version: part[1], Resource: part[2]})
		if namespace != "" {
			return r.Namespace(namespace)
		}
		return r
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"felixlike.yaml", "components/wireguard/rbac.yaml", "components/netnamespaces-crd/crd.yaml", "components/isolation/rbac.yaml"} {
		objects := read(t, file)
		for _, kind := range []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
			for _, o := range objects {
				if o["kind"] == kind {
					u := &unstructured.Unstructured{Object: o}
					_, err := in(all, kind, u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{})
					must(err)
				}
			}
		}
	}
	client, err := clientset.NewForConfig(admin)
	must(err)
	for _, name := range []string{"n1", "n2"} {
		_, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b"}}}, metav1.CreateOptions{})
		must(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "felixlike", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	pod, err = client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	must(err)
	token := func(bound *authenticationv1.BoundObjectReference) *rest.Config {
		r, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "felixlike", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
		must(err)
		c := rest.CopyConfig(admin)
		c.BearerToken = r.Status.Token
		return c
	}
	agent, err := clientset.NewForConfig(token(&authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}))
	must(err)
	agentConfig := token(&authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID})
	objects, err := dynamic.NewForConfig(agentConfig)
	must(err)
	unbound, err := clientset.NewForConfig(token(nil))
	must(err)

	patch := func(c clientset.Interface, node, body string) error {
		_, err := c.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	key := func(value string) string {
		return `{"metadata":{"annotations":{"` + model.PublicKeyAnnotation + `":"` + value + `"}}}`
	}
	// The policies are in force some time after they were created.
	eventually.True(t, "an agent may not patch the Node of another one", func() bool {
		err := patch(agent, "n2", key("x"))
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	})
	// Conditions of the kubelet and the agent's, written as the agent writes it.
	kubelet := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}, {Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}}
	for _, name := range []string{"n1", "n2"} {
		node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		must(err)
		node.Status = corev1.NodeStatus{
			Conditions: kubelet, Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}, Images: []corev1.ContainerImage{{Names: []string{"i"}}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1"},
		}
		_, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		must(err)
	}
	conditions := func() []corev1.NodeCondition {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		must(err)
		return node.Status.Conditions
	}
	source, err := kubernetes.New(kubernetes.Options{Config: agentConfig, Node: "n1", Log: slog.New(slog.DiscardHandler)})
	must(err)
	nodeStatus := func(node, conditions, more string) error {
		body := `{"status":{"conditions":[` + conditions + `]` + more + `}}`
		_, err := agent.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
		return err
	}
	condition := corev1.NodeCondition{Type: hosts.ConditionType, Status: corev1.ConditionFalse, Reason: hosts.ReasonWithdrawn, Message: "withdrawn: a"}
	written := source.SetNodeCondition(t.Context(), condition)
	read, err := source.NodeCondition(t.Context(), hosts.ConditionType)
	if err != nil || !reflect.DeepEqual(read, &condition) || !reflect.DeepEqual(conditions(), append([]corev1.NodeCondition{condition}, kubelet...)) {
		t.Errorf("%v: read %v of %v", err, read, conditions())
	}
	condition.Status = corev1.ConditionTrue
	changed := source.SetNodeCondition(t.Context(), condition)
	if !reflect.DeepEqual(conditions(), append([]corev1.NodeCondition{condition}, kubelet...)) {
		t.Errorf("changed: %v", conditions())
	}
	removed := errors.Join(source.RemoveNodeCondition(t.Context(), hosts.ConditionType), source.RemoveNodeCondition(t.Context(), hosts.ConditionType))
	read, err = source.NodeCondition(t.Context(), hosts.ConditionType)
	if err != nil || read != nil || !reflect.DeepEqual(conditions(), kubelet) {
		t.Errorf("removed: %v, %v of %v", err, read, conditions())
	}
	ours := `{"type":"` + string(hosts.ConditionType) + `","status":"True"}`
	add := `{"op":"add","path":"/status/conditions/-","value":` + ours + `}`
	_, twice := agent.CoreV1().Nodes().Patch(t.Context(), "n1", types.JSONPatchType, []byte("["+add+","+add+"]"), metav1.PatchOptions{}, "status")
	message := func(length int) string {
		return strings.TrimSuffix(ours, "}") + `,"message":"` + strings.Repeat("m", length) + `"}`
	}
	lease := func(name, holder string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if holder != "" {
			l.Spec.HolderIdentity = &holder
		}
		return l
	}
	leases, own := client.CoordinationV1().Leases(namespace), agent.CoordinationV1().Leases(namespace)
	create := func(name, holder string) error {
		_, err := own.Create(t.Context(), lease(name, holder), metav1.CreateOptions{})
		return err
	}
	update := func(name, from, to string) error {
		t.Helper()
		_ = leases.Delete(t.Context(), name, metav1.DeleteOptions{})
		l, err := leases.Create(t.Context(), lease(name, from), metav1.CreateOptions{})
		must(err)
		l.Spec = lease(name, to).Spec
		_, err = own.Update(t.Context(), l, metav1.UpdateOptions{})
		return err
	}
	remove := func(name, holder string) error {
		t.Helper()
		_ = leases.Delete(t.Context(), name, metav1.DeleteOptions{})
		_, err := leases.Create(t.Context(), lease(name, holder), metav1.CreateOptions{})
		must(err)
		return own.Delete(t.Context(), name, metav1.DeleteOptions{})
	}
	egresses := schema.GroupVersionResource{Group: "felixlike.io", Version: "v1alpha1", Resource: "egresses"}
	status := func(before, after string) error {
		t.Helper()
		_ = all.Resource(egresses).Delete(t.Context(), "e", metav1.DeleteOptions{})
		e := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "felixlike.io/v1alpha1", "kind": "Egress", "metadata": map[string]any{"name": "e"},
			"spec": map[string]any{"egressIP": "192.0.2.1", "node": "n1", "appliedTo": map[string]any{"podSelector": map[string]any{}}},
		}}
		_, err := all.Resource(egresses).Create(t.Context(), e, metav1.CreateOptions{})
		must(err)
		set := func(c dynamic.Interface, node string) error {
			_, err := c.Resource(egresses).Patch(t.Context(), "e", types.MergePatchType, []byte(`{"status":{"egressNode":"`+node+`"}}`), metav1.PatchOptions{}, "status")
			return err
		}
		if before != "" {
			must(set(all, before))
		}
		return set(objects, after)
	}
	// netNamespace has the agent replace a NetNamespace with number 20 whose annotation asks for something.
	numbers := schema.GroupVersionResource{Group: "network.openshift.io", Version: "v1", Resource: "netnamespaces"}
	netNamespace := func(asked string, number int64, left bool, addresses ...any) error {
		t.Helper()
		_ = all.Resource(numbers).Delete(t.Context(), "shop", metav1.DeleteOptions{})
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "network.openshift.io/v1", "kind": "NetNamespace", "metadata": map[string]any{"name": "shop"}, "netname": "shop", "netid": int64(20),
			"egressIPs": []any{"192.0.2.100"},
		}}
		if asked != "" {
			o.SetAnnotations(map[string]string{change.Annotation: asked})
		}
		o, err := all.Resource(numbers).Create(t.Context(), o, metav1.CreateOptions{})
		must(err)
		o.Object["netid"] = number
		if len(addresses) > 0 {
			o.Object["egressIPs"] = addresses
		}
		if !left {
			o.SetAnnotations(nil)
		}
		_, err = objects.Resource(numbers).Update(t.Context(), o, metav1.UpdateOptions{})
		return err
	}
	// number has the agent create a NetNamespace.
	number := func(number int64, addresses []any, annotations map[string]string) error {
		t.Helper()
		_ = all.Resource(numbers).Delete(t.Context(), "new", metav1.DeleteOptions{})
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "network.openshift.io/v1", "kind": "NetNamespace", "metadata": map[string]any{"name": "new"}, "netname": "new", "netid": number,
		}}
		if addresses != nil {
			o.Object["egressIPs"] = addresses
		}
		o.SetAnnotations(annotations)
		_, err := objects.Resource(numbers).Create(t.Context(), o, metav1.CreateOptions{})
		return err
	}
	for _, c := range []struct {
		what string
		err  error
		may  bool
	}{
		{"a namespace that asks to join", netNamespace("join:bank", 21, false), true},
		{"a namespace that asks to be isolated", netNamespace("isolate", 22, false), true},
		{"a namespace that asks to be global", netNamespace("global", 0, false), true},
		{"a namespace that asks for nothing", netNamespace("", 21, false), false},
		{"a namespace that asks, without an answer", netNamespace("join:bank", 21, true), false},
		{"a namespace that asks to join, made global", netNamespace("join:bank", 0, false), false},
		{"a namespace that asks to join, with another address", netNamespace("join:bank", 21, false, "192.0.2.101"), false},
		{"a namespace that asks to be global, joined", netNamespace("global", 21, false), false},
		{"a namespace without a number", number(30, nil, nil), true},
		{"a namespace without a number, made global", number(0, nil, nil), false},
		{"a namespace without a number, with an address", number(30, []any{"192.0.2.1"}, nil), false},
		{"a namespace without a number, as joined on purpose", number(30, nil, map[string]string{model.JoinedAnnotation: "30"}), false},
		{"the Lease of NetNamespaces", create("felixlike-netnamespaces", "n1"), true},
		{"the Lease of numbers", create("felixlike-netnamespace-numbers", ""), true},
		{"the Lease of numbers, deleted", remove("felixlike-netnamespace-numbers", ""), false},
		{"its key", patch(agent, "n1", key("x")), true},
		{"another key of its own", patch(agent, "n1", key("y")), true},
		{"a label of its Node", patch(agent, "n1", `{"metadata":{"labels":{"a":"c"}}}`), false},
		{"a taint of its Node", patch(agent, "n1", `{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`), false},
		{"a pod CIDR of its Node", patch(agent, "n1", `{"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]}}`), false},
		{"another annotation of its Node", patch(agent, "n1", `{"metadata":{"annotations":{"k":"v"}}}`), false},
		{"the key of another Node", patch(agent, "n2", key("x")), false},
		{"a key with a token of no pod", patch(unbound, "n1", key("z")), false},
		{"its condition", written, true},
		{"its condition, changed", changed, true},
		{"its condition, removed twice", removed, true},
		{"its condition at another Node", nodeStatus("n2", ours, ""), false},
		{"another condition", nodeStatus("n1", `{"type":"Other","status":"True"}`, ""), false},
		{"the kubelet's condition", nodeStatus("n1", `{"type":"Ready","status":"False"}`, ""), false},
		{"the kubelet's condition, removed, with its own", nodeStatus("n1", `{"type":"Ready","$patch":"delete"},`+ours, ""), false},
		{"an address beside its condition", nodeStatus("n1", ours, `,"addresses":[{"type":"ExternalIP","address":"192.0.2.8"}]`), false},
		{"its condition twice", twice, false},
		{"its condition with a long message", nodeStatus("n1", message(1024), ""), true},
		{"its condition with a longer message", nodeStatus("n1", message(1025), ""), false},
		{"its condition with another status", nodeStatus("n1", strings.Replace(ours, "True", "Maybe", 1), ""), false},
		{"a capacity", nodeStatus("n1", "", `,"capacity":{"a.b/c":"1"}`), false},
		{"images, removed", nodeStatus("n1", "", `,"images":null`), false},
		{"the Lease of its node", create("egress-node-n1", "n1"), true},
		{"the Lease of another node", create("egress-node-n2", "n1"), false},
		{"its Lease in another name", update("egress-node-n1", "n1", "n2"), false},
		{"an address", create("egress-192.0.2.1", "n1"), true},
		{"an address for another node", create("egress-192.0.2.2", "n2"), false},
		{"an address without a node", create("egress-192.0.2.3", ""), true},
		{"an address of a dead node", update("egress-192.0.2.4", "n2", "n1"), true},
		{"its address, given up", update("egress-192.0.2.5", "n1", ""), true},
		{"another node's address, given up", update("egress-192.0.2.6", "n2", ""), false},
		{"another node's address, given on", update("egress-192.0.2.7", "n2", "n3"), false},
		{"an address without an Egress, deleted", remove("egress-192.0.2.8", "n2"), true},
		{"another node's Lease, deleted", remove("egress-node-n2", "n2"), false},
		{"the Lease of the status", create("felixlike-clusternetworkpolicies", "n1"), true},
		{"the Lease of the status for another node", update("felixlike-clusternetworkpolicies", "n1", "n2"), false},
		{"another Lease", create("other", "n1"), false},
		{"the status of its Egress", status("", "n1"), true},
		{"the status of an Egress of another node", status("", "n2"), false},
		{"the status of an Egress that another node had", status("n2", "n1"), true},
		{"the status of an Egress, unchanged", status("n2", "n2"), true},
	} {
		refused := apierrors.IsInvalid(c.err) || apierrors.IsForbidden(c.err)
		if c.may && c.err != nil || !c.may && !(refused && strings.Contains(c.err.Error(), "ValidatingAdmissionPolicy")) {
			t.Errorf("%s: %v, may %v", c.what, c.err, c.may)
		}
	}
}
