package service_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/model"
)

// newService returns a Service of the namespace shop from YAML. The names of its ports are those of the API server's defaults.
func newService(t testing.TB, text string) *corev1.Service {
	t.Helper()
	s := &corev1.Service{}
	if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	s.Namespace = "shop"
	if s.Spec.ClusterIP == "" && len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	return s
}

// newSlice returns an EndpointSlice of the namespace shop from "NAME SERVICE PORT=NUMBER/PROTOCOL... ADDRESS@NODE,CONDITION,zone=ZONE,node=NODE...".
// Conditions are unready, draining (serving and terminating) and terminating.
func newSlice(t testing.TB, text string) *discoveryv1.EndpointSlice {
	t.Helper()
	words := strings.Fields(text)
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	s.Namespace, s.Name, s.Labels = "shop", words[0], map[string]string{discoveryv1.LabelServiceName: words[1]}
	for _, w := range words[2:] {
		before, after, isPort := strings.Cut(w, "=")
		if isPort && strings.Contains(after, "/") {
			number, protocol, _ := strings.Cut(after, "/")
			n, err := strconv.ParseInt(number, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			n32, p := int32(n), corev1.Protocol(protocol)
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &before, Port: &n32, Protocol: &p})
			continue
		}
		facts := strings.Split(w, ",")
		address, node, _ := strings.Cut(facts[0], "@")
		e := discoveryv1.Endpoint{Addresses: []string{address}}
		if node != "" {
			e.NodeName = &node
		}
		if strings.Contains(address, ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		no, yes := false, true
		for _, fact := range facts[1:] {
			key, value, _ := strings.Cut(fact, "=")
			switch key {
			case "unready":
				e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no}
			case "draining":
				e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
			case "terminating":
				e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}
			case "zone", "node":
				if e.Hints == nil {
					e.Hints = &discoveryv1.EndpointHints{}
				}
				if key == "zone" {
					e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: value})
				} else {
					e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: value})
				}
			default:
				t.Fatalf("unknown fact %q", fact)
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// newNode returns a node from "NAME ZONE ADDRESS...".
func newNode(text string) *corev1.Node {
	words := strings.Fields(text)
	n := &corev1.Node{}
	n.Name, n.Labels = words[0], map[string]string{corev1.LabelTopologyZone: words[1]}
	for _, a := range words[2:] {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// textOf shows a port: a line a frontend.
func textOf(p *model.ServicePort) string {
	var b strings.Builder
	head := p.ID.String()
	if p.Affinity != 0 {
		head += fmt.Sprint(" affinity ", p.Affinity)
	}
	if !p.Masquerade {
		head += " no-masquerade"
	}
	for _, f := range p.Frontends {
		kind := [...]string{"cluster", "external", "lb", "node"}[f.Kind]
		fmt.Fprintf(&b, "%s %s %s:%d ->%s", head, kind, f.Addr, f.Port, listOf(f.Endpoints))
		if len(f.Endpoints) == 0 {
			b.WriteString([...]string{" refuse", " drop"}[f.Empty])
		}
		if in := listOf(f.Inside); in != listOf(f.Endpoints) {
			b.WriteString(" inside" + in)
		}
		if f.Sources != nil {
			fmt.Fprint(&b, " sources ", f.Sources)
		}
		b.WriteByte('\n')
	}
	if len(p.Frontends) == 0 {
		fmt.Fprintln(&b, head, "no frontend")
	}
	return b.String()
}

func listOf(all []model.ServiceEndpoint) string {
	var b strings.Builder
	for _, e := range all {
		b.WriteString(" " + e.String())
		if e.Local {
			b.WriteByte('*')
		}
	}
	return b.String()
}
