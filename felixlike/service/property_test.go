package service_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/service"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
)

// objects are what a cluster has.
type objects struct {
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	nodes    map[string]*corev1.Node
}

// TestIncremental: after any changes, an engine has sent what a new engine sends for the same objects, and at no Flush have two ports one frontend.
func TestIncremental(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		e := service.New("here")
		all := objects{map[string]*corev1.Service{}, map[string]*discoveryv1.EndpointSlice{}, map[string]*corev1.Node{}}
		sent := state{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			all.change(t, e)
			if rapid.Bool().Draw(t, "flush") {
				sent.take(e.Flush())
				sent.check(t)
			}
		}
		sent.take(e.Flush())
		sent.check(t)
		fresh := service.New("here")
		for _, n := range all.nodes {
			fresh.SetNode(n)
		}
		for _, s := range all.slices {
			fresh.SetEndpointSlice(s)
		}
		for _, s := range all.services {
			fresh.SetService(s)
		}
		want := state{}
		want.take(fresh.Flush())
		if d := cmp.Diff(want.String(), sent.String()); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(fresh.Problems(), e.Problems()); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(fmt.Sprint(fresh.Names()), fmt.Sprint(e.Names())); d != "" {
			t.Error(d)
		}
	})
}

// state is what the updates of an engine come to.
type state struct {
	ports  map[model.ServicePortID]*model.ServicePort
	health []model.ServiceHealth
}

func (s *state) take(all []model.Update) {
	if s.ports == nil {
		s.ports = map[model.ServicePortID]*model.ServicePort{}
	}
	for _, u := range all {
		switch u := u.(type) {
		case model.ServicePortUpdate:
			s.ports[u.Port.ID] = u.Port
		case model.ServicePortRemove:
			delete(s.ports, u.ID)
		case model.ServiceHealthUpdate:
			s.health = u.All
		}
	}
}

func (s *state) check(t *rapid.T) {
	owner := map[string]model.ServicePortID{}
	for id, p := range s.ports {
		for _, f := range p.Frontends {
			at := fmt.Sprint(f.Addr, " ", f.Port, " ", id.Protocol)
			if o, taken := owner[at]; taken {
				t.Errorf("%s is a frontend of %s and %s", at, o, id)
			}
			owner[at] = id
		}
	}
}

func (s *state) String() string {
	var b strings.Builder
	for _, id := range slices.SortedFunc(maps.Keys(s.ports), func(a, b model.ServicePortID) int { return strings.Compare(a.String(), b.String()) }) {
		b.WriteString(textOf(s.ports[id]))
		fmt.Fprintln(&b, s.ports[id].Serving)
	}
	fmt.Fprintln(&b, s.health)
	return b.String()
}

// change changes one object.
func (o *objects) change(t *rapid.T, e *service.Engine) {
	flip := func(name string) bool { return rapid.Bool().Draw(t, name) }
	number := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	name := fmt.Sprint("s", number("service", 3))
	switch rapid.SampledFrom([]string{"service", "slice", "delete service", "delete slice", "node", "delete node"}).Draw(t, "what") {
	case "service":
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.Time{Time: time.Unix(int64(number("created", 2)), 0)}}}
		s.Spec.ClusterIP = fmt.Sprint("10.96.0.", number("cluster IP", 4))
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
		if flip("two families") {
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, fmt.Sprint("fd00:96::", number("second", 4)))
		}
		s.Spec.Type = rapid.SampledFrom([]corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}).Draw(t, "type")
		if flip("external Local") {
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, int32(32000+number("health", 2))
		}
		if local := corev1.ServiceInternalTrafficPolicyLocal; flip("internal Local") {
			s.Spec.InternalTrafficPolicy = &local
		}
		for i := range number("ports", 3) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(80 + number("port", 2)), NodePort: int32(number("node port", 2))})
		}
		addresses := rapid.SampledFrom([]string{"10.96.0.1", "10.96.0.2", "192.0.2.1", "192.0.2.2", "172.16.0.1", "fd00:96::1"})
		s.Spec.ExternalIPs = rapid.SliceOfN(addresses, 0, 2).Draw(t, "external")
		for _, a := range rapid.SliceOfN(addresses, 0, 2).Draw(t, "lb") {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
		o.services[name] = s
		e.SetService(s)
	case "slice":
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("e", number("slice", 3)), Labels: map[string]string{discoveryv1.LabelServiceName: name}}}
		for i := range number("slice's ports", 2) {
			port, n := fmt.Sprint("p", i), int32(8080+number("target", 1))
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &port, Port: &n})
		}
		for range number("endpoints", 4) {
			node, ready, serving, terminating := rapid.SampledFrom([]string{"here", "there"}).Draw(t, "on"), flip("ready"), flip("serving"), flip("terminating")
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(number("address", 3))})
			one := discoveryv1.Endpoint{Addresses: []string{a.String()}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}}
			if flip("hint") {
				one.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone")}}}
			}
			s.Endpoints = append(s.Endpoints, one)
		}
		o.slices[s.Name] = s
		e.SetEndpointSlice(s)
	case "delete service":
		delete(o.services, name)
		e.DeleteService("shop", name)
	case "delete slice":
		slice := fmt.Sprint("e", number("slice", 3))
		delete(o.slices, slice)
		e.DeleteEndpointSlice("shop", slice)
	case "node":
		n := newNode(fmt.Sprintf("%s %s 172.16.0.%d", rapid.SampledFrom([]string{"here", "there"}).Draw(t, "node"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "its zone"), number("node's address", 2)))
		o.nodes[n.Name] = n
		e.SetNode(n)
	case "delete node":
		delete(o.nodes, "there")
		e.DeleteNode("there")
	}
}
