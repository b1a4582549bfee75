package kubernetes_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

func TestServiceCIDRs(t *testing.T) {
	f := newFixture(t)
	v := f.open(t)
	check := func(when, want string) {
		t.Helper()
		if got := fmt.Sprint(v.Sync(t).Services); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	check("at first", "[10.96.0.0/16]")
	f.serviceCIDR(t, "more", "10.112.0.0/16", "fd00:96::/112")
	check("one more", "[10.96.0.0/16 10.112.0.0/16 fd00:96::/112]")
	if err := f.NetworkingV1().ServiceCIDRs().Delete(t.Context(), "more", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	check("without it", "[10.96.0.0/16]")
}

// TestServices: Services and EndpointSlices come if they are asked for, without those that no node serves, and without what no node needs.
func TestServices(t *testing.T) {
	f := newFixture(t)
	create := func(name string, labels map[string]string, clusterIP string) {
		t.Helper()
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels, CreationTimestamp: metav1.Now()}}
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: clusterIP, ClusterIPs: []string{clusterIP}, Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("http")}}}
		if _, err := f.CoreV1().Services("shop").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	slice := func(name string, labels map[string]string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4}
		zone := "a"
		s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Zone: &zone}}
		return s
	}
	slices := f.DiscoveryV1().EndpointSlices("shop")
	create("web", nil, "10.96.0.1")
	create("meshed", map[string]string{"service.kubernetes.io/service-proxy-name": "mesh"}, "10.96.0.2")
	create("labelled", map[string]string{corev1.IsHeadlessService: ""}, "10.96.0.3")
	for name, labels := range map[string]map[string]string{
		"web-1": {discoveryv1.LabelServiceName: "web"}, "headless-1": {discoveryv1.LabelServiceName: "headless", corev1.IsHeadlessService: ""},
		"meshed-1": {discoveryv1.LabelServiceName: "meshed", "service.kubernetes.io/service-proxy-name": "mesh"}, "lonely": nil,
	} {
		if _, err := slices.Create(t.Context(), slice(name, labels), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	off := f.open(t)
	off.Sync(t)
	if asked := f.Asked("/api/v1/services") + f.Asked("/apis/discovery.k8s.io/v1/endpointslices"); asked != 0 {
		t.Errorf("%d requests without the option", asked)
	}
	v := f.openServices(t)
	seen := v.Sync(t)
	if names := fmt.Sprint(maps.Keys(seen.ServiceObjects), maps.Keys(seen.Slices)); len(seen.ServiceObjects) != 1 || len(seen.Slices) != 1 {
		t.Fatal(names)
	}
	if s := seen.ServiceObjects["shop/web"]; s.Spec.ClusterIP != "10.96.0.1" || s.Spec.Selector != nil || s.CreationTimestamp.IsZero() {
		t.Errorf("%+v", s)
	}
	if e := seen.Slices["shop/web-1"].Endpoints[0]; e.Addresses[0] != "10.0.0.1" || e.Zone != nil {
		t.Errorf("%+v", e)
	}
	// What cannot be understood is a problem, and the last good version stays.
	wrong := slice("web-1", map[string]string{discoveryv1.LabelServiceName: "web"})
	wrong.Endpoints[0].Addresses[0] = "fd00::1"
	if _, err := slices.Update(t.Context(), wrong, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	seen = v.Sync(t)
	if p := fmt.Sprint(seen.Last.Problems); !strings.Contains(p, "endpointslice/shop/web-1: endpoints[0].addresses[0]: fd00::1 is no address of addressType IPv4") {
		t.Error(p)
	}
	if seen.Slices["shop/web-1"].Endpoints[0].Addresses[0] != "10.0.0.1" {
		t.Error("the last good version is gone")
	}
	if err := f.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := slices.Delete(t.Context(), "web-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if seen = v.Sync(t); len(seen.ServiceObjects)+len(seen.Slices)+len(seen.Last.Problems) > 0 {
		t.Errorf("left: %v %v %v", seen.ServiceObjects, seen.Slices, seen.Last.Problems)
	}
}

// openServices is open with Services and EndpointSlices.
func (f *fixture) openServices(t *testing.T) *kubernetestest.View {
	t.Helper()
	source, err := kubernetes.New(kubernetes.Options{Config: f.Config("agent"), Node: "n1", Services: true, NetNamespaces: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return kubernetestest.Follow(t, source)
}

// TestNoServiceCIDRs: an API server that has no such kind, or does not let us read
// it, holds nothing up.
func TestNoServiceCIDRs(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusForbidden} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			f := newFixture(t)
			f.Refuse(status, "servicecidrs")
			f.pods(t, "a")
			v := f.open(t)
			seen := v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync })
			if seen.Services != nil || !has("a")(seen) {
				t.Errorf("services: %v", seen.Services)
			}
			if reported := len(seen.Last.Problems) == 1; reported != (status == http.StatusForbidden) {
				t.Errorf("problems: %v", seen.Last.Problems)
			}
			v.Sync(t)
		})
	}
}

// TestServiceCIDRsOfAnAPIServerThatBegins: until it has read its roles, an API server
// forbids everything. That is not taken for a lack of rights.
func TestServiceCIDRsOfAnAPIServerThatBegins(t *testing.T) {
	f := newFixture(t)
	f.Refuse(http.StatusForbidden)
	v := f.open(t)
	v.Until(t, "everything is forbidden", func(s kubernetestest.Seen) bool {
		return slices.ContainsFunc(s.Last.Problems, func(p model.Problem) bool { return p.Field == "servicecidrs" })
	})
	f.Refuse(0)
	if seen := v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync }); fmt.Sprint(seen.Services) != "[10.96.0.0/16]" {
		t.Errorf("in sync with the Services' %v", seen.Services)
	}
}

// TestServers: the first API server that answers is used, and not the one of the configuration.
func TestServers(t *testing.T) {
	f := newFixture(t)
	config := f.Config("agent")
	_, at, _ := strings.Cut(config.Host, "://")
	config.Host = "http://kubernetes.default.svc:1"
	source, err := kubernetes.New(kubernetes.Options{Config: config, Servers: []string{"127.0.0.1:1", at}, Node: "n1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if seen := kubernetestest.Follow(t, source).Sync(t); fmt.Sprint(seen.Services) != "[10.96.0.0/16]" {
		t.Errorf("%v", seen.Services)
	}
}
