package cluster

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/trafficprobe"
)

// newTrafficKubectl is a kubectl of a cluster of two nodes in which a traffic check can be made.
func newTrafficKubectl(t *testing.T) fakeKubectl {
	t.Helper()
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	k.file(t, "nodes", "node/n1\nnode/n2\n")
	agent := pod("n1", "")
	agent.Spec.Containers = []corev1.Container{{Name: container, Image: "felixlike:v1"}}
	k.object(t, "pod", agent)
	port := int32(6443)
	k.object(t, "endpointslices", discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{{
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.9"}}}, Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}}})
	var pods corev1.PodList
	var nodes corev1.NodeList
	for i, name := range []string{"n1", "n2"} {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: serverOf(i)}}
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.0." + name[1:] + ".2"}, {IP: "fd00::" + name[1:]}}
		pods.Items = append(pods.Items, p)
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2." + name[1:]}, {Type: corev1.NodeHostName, Address: name}}
		nodes.Items = append(nodes.Items, n)
	}
	k.object(t, "traffic-pods", pods)
	k.object(t, "traffic-nodes", nodes)
	k.object(t, "traffic-service", corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.7"}, Ports: []corev1.ServicePort{{NodePort: 30080}}}})
	return k
}

// results are those of one node's paths: same node and cross node in two families, Service,
// NodePort, DNS, outside, and the denied ones.
func results(edit ...func(all []trafficprobe.Result)) []trafficprobe.Result {
	var all []trafficprobe.Result
	for i := range 12 {
		all = append(all, trafficprobe.Result{Open: i < 8, Detail: "as it is"})
	}
	for _, f := range edit {
		f(all)
	}
	return all
}

func (k fakeKubectl) has(name string) bool {
	_, err := os.Stat(filepath.Join(k.dir, name))
	return err == nil
}

// TestTrafficWithoutDNS: a cluster without a Service of DNS has no failed path because of that. With one, or if that is
// not known, the path is as it was found.
func TestTrafficWithoutDNS(t *testing.T) {
	k := newTrafficKubectl(t)
	noDNS := results(func(all []trafficprobe.Result) { all[6] = trafficprobe.Result{Detail: "no such host"} })
	for i := range 2 {
		k.object(t, "sent-client-"+strconv.Itoa(i), noDNS)
	}
	services := func(port int32) {
		k.object(t, "traffic-services", corev1.ServiceList{Items: []corev1.Service{{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}}}}})
	}
	services(443)
	code, out := run(t.Context(), "", "check", "--traffic")
	if code != 0 || !strings.Contains(out, "24 paths, 22 as expected, 2 not there: the cluster has no DNS") || !strings.Contains(out, "no Service has port 53") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	services(53)
	for _, known := range []bool{true, false} {
		if !known {
			if err := os.Remove(filepath.Join(k.dir, "traffic-services")); err != nil {
				t.Fatal(err)
			}
		}
		code, out = run(t.Context(), "", "check", "--traffic")
		if code != 1 || !strings.Contains(out, "24 paths, 22 as expected\n") || !strings.Contains(out, "no such host") {
			t.Errorf("services known: %v: exit code %d\n%s", known, code, out)
		}
	}
}

// TestTraffic: all paths are tried from each node. One that is not as expected is exit code 1,
// a failure is 2, and the namespace is deleted each time.
func TestTraffic(t *testing.T) {
	k := newTrafficKubectl(t)
	k.object(t, "sent-client-0", results())
	k.object(t, "sent-client-1", results())
	code, out := run(t.Context(), "", "check", "--traffic")
	if code != 0 || !strings.Contains(out, "24 paths, 24 as expected") || k.has("deletable") {
		t.Errorf("exit code %d, namespace left: %v\n%s", code, k.has("deletable"), out)
	}
	asked := k.asked(t)
	for _, want := range []string{
		`{"open":true,"address":"10.0.1.2:8080"},{"open":true,"address":"[fd00::1]:8080"},{"open":true,"address":"10.0.2.2:8080"}`,
		`{"open":true,"address":"10.96.0.7:80"},{"open":true,"address":"192.0.2.1:30080"},{"open":true,"address":"server.felixlike-traffic-`,
		`.svc","lookup":true},{"open":true,"address":"192.0.2.9:6443","silent":true},{"open":false,"address":"10.0.1.2:8081"}`,
	} {
		if !strings.Contains(asked, want) {
			t.Errorf("%s was not tried:\n%s", want, asked)
		}
	}
	var made struct{ Items []corev1.Pod }
	text, err := os.ReadFile(filepath.Join(k.dir, "created"))
	if err == nil {
		err = json.Unmarshal(text, &made)
	}
	on := map[string]int{}
	for _, p := range made.Items {
		if p.Kind == "Pod" {
			on[p.Spec.NodeName]++
			if p.Spec.Containers[0].Image != "felixlike:v1" {
				t.Errorf("image %s", p.Spec.Containers[0].Image)
			}
		}
	}
	if err != nil || on["n1"] != 2 || on["n2"] != 2 {
		t.Errorf("pods by node: %v, %v", on, err)
	}

	k.object(t, "sent-client-1", results(func(all []trafficprobe.Result) { all[11].Open, all[11].Detail = true, "answered by server-0" }))
	code, out = run(t.Context(), "", "check", "--traffic", "-o", "json")
	var paths []trafficPath
	if err := json.Unmarshal([]byte(out), &paths); err != nil || code != 1 || len(paths) != 24 || k.has("deletable") {
		t.Fatalf("exit code %d, %d paths, %v\n%s", code, len(paths), err, out)
	}
	if p := paths[23]; p.OK || p.Path != denied || p.From != "n2" || p.To != "n1" || p.Detail != "answered by server-0" || !paths[22].OK {
		t.Errorf("%+v", p)
	}

	// kubectl can lose the end of an answer.
	k.file(t, "sent-client-1", `[{"open":true,`)
	k.object(t, "sent-client-1.next", results())
	if code, out = run(t.Context(), "", "check", "--traffic"); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}

	k.file(t, "sent-client-1", "no JSON")
	if code, out = run(t.Context(), "", "check", "--traffic"); code != 2 || !strings.Contains(out, "node n2") || k.has("deletable") {
		t.Errorf("exit code %d, namespace left: %v\n%s", code, k.has("deletable"), out)
	}
	if code, out = run(t.Context(), "", "check", "--outside", "192.0.2.1:80"); code != 2 || !strings.Contains(out, "--outside is for --traffic") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestInterruptedTraffic: an interrupt while the pods start deletes the namespace.
func TestInterruptedTraffic(t *testing.T) {
	k := newTrafficKubectl(t)
	k.file(t, "wait-hangs", "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for !k.has("waiting") && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	if code, out := run(ctx, "", "check", "--traffic"); code != 2 || !k.has("created") || k.has("deletable") {
		t.Errorf("exit code %d, made: %v, namespace left: %v\n%s", code, k.has("created"), k.has("deletable"), out)
	}
}
