package cli

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/servicelist"
)

// servicesHint says how trace gets to know Services.
const servicesHint = "name them with --services FILE (kubectl get services -A -o yaml | felixctl trace --services - ...)"

func serviceEnd(name string, services []*corev1.Service) (end, error) {
	for _, s := range services {
		if s.Namespace+"/"+s.Name == name {
			return end{text: name, service: s}, nil
		}
	}
	return end{}, fmt.Errorf("service %s is not known: felixlike does not watch Services; %s", name, servicesHint)
}

// target is an endpoint of a Service.
type target struct {
	end
	port uint16
}

// endpoints returns the pods behind a Service and the port that each has for the
// Service's.
func endpoints(s *corev1.Service, p port, o control.Objects) ([]target, error) {
	name := s.Namespace + "/" + s.Name
	at, err := servicePort(s, p)
	if err != nil {
		return nil, err
	}
	if len(s.Spec.Selector) == 0 {
		return nil, fmt.Errorf("service %s has no selector: name the endpoint itself", name)
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	var all []target
	for _, pod := range o.Pods {
		if pod.Namespace != s.Namespace || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		e, err := podEnd(pod)
		if err != nil {
			continue // it is none now
		}
		behind := port{protocol: protocolOf(at.Protocol), number: uint16(at.Port)}
		switch {
		case at.TargetPort.Type == intstr.String && at.TargetPort.StrVal != "":
			behind.number, behind.name = 0, at.TargetPort.StrVal
		case at.TargetPort.IntVal != 0:
			behind.number = uint16(at.TargetPort.IntVal)
		}
		number, err := behind.of(pod, e.text)
		if err != nil {
			continue // a pod without the port is no endpoint
		}
		all = append(all, target{e, number})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("service %s has no endpoint", name)
	}
	return all, nil
}

func servicePort(s *corev1.Service, p port) (corev1.ServicePort, error) {
	var known []string
	for _, one := range s.Spec.Ports {
		if protocolOf(one.Protocol) == p.protocol && (p.name != "" && one.Name == p.name || p.name == "" && one.Port == int32(p.number)) {
			return one, nil
		}
		known = append(known, fmt.Sprintf("%d/%s", one.Port, protocolOf(one.Protocol)))
	}
	return corev1.ServicePort{}, fmt.Errorf("service %s/%s has no such port; it has %v", s.Namespace, s.Name, known)
}

// findEnd resolves a name: "namespace/pod", "node:NAME",
// "service:namespace/name" or its name in DNS, or an address, with or without "ip:" before it.
func findEnd(text string, o control.Objects, services []*corev1.Service) (end, error) {
	if name, found := strings.CutPrefix(text, "node:"); found {
		return nodeEnd(name, o)
	}
	if name, found := servicelist.Named(text); found {
		return serviceEnd(name, services)
	}
	if a, err := netip.ParseAddr(strings.TrimPrefix(text, "ip:")); err == nil {
		return addressEnd(a.Unmap(), o, services), nil
	}
	namespace, pod, isPod := strings.Cut(text, "/")
	if !isPod || namespace == "" || pod == "" {
		return end{}, fmt.Errorf("%q: want namespace/pod, node:NAME, service:namespace/name, name.namespace.svc or an address", text)
	}
	for _, p := range o.Pods {
		if p.Namespace == namespace && p.Name == pod {
			return podEnd(p)
		}
	}
	for _, s := range services {
		if s.Namespace == namespace && s.Name == pod {
			return serviceEnd(text, services)
		}
	}
	return end{}, fmt.Errorf("%s: the agent knows no such pod", text)
}

type services = []*corev1.Service
