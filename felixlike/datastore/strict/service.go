package strict

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Service returns the faults of a Service's values by the rules of the API server, as far as a proxy depends on them.
func Service(s *corev1.Service) []Fault {
	var f faults
	spec := &s.Spec
	oneOf(&f, "spec.type", spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	if spec.ClusterIP != corev1.ClusterIPNone {
		f.address("spec.clusterIP", spec.ClusterIP, true)
		for i, a := range spec.ClusterIPs {
			f.address(fmt.Sprintf("spec.clusterIPs[%d]", i), a, false)
		}
		if len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] != spec.ClusterIP {
			f.add("spec.clusterIPs[0]", "%q is not spec.clusterIP", spec.ClusterIPs[0])
		}
	}
	for i, p := range spec.Ports {
		at := fmt.Sprintf("spec.ports[%d].", i)
		f.port(at+"port", p.Port, 1)
		f.port(at+"nodePort", p.NodePort, 0)
		oneOf(&f, at+"protocol", p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
	for i, a := range spec.ExternalIPs {
		f.address(fmt.Sprintf("spec.externalIPs[%d]", i), a, false)
	}
	oneOf(&f, "spec.sessionAffinity", spec.SessionAffinity, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil && (*c.ClientIP.TimeoutSeconds < 1 || *c.ClientIP.TimeoutSeconds > 86400) {
		f.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not between 1 and 86400", *c.ClientIP.TimeoutSeconds)
	}
	oneOf(&f, "spec.externalTrafficPolicy", spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	if p := spec.InternalTrafficPolicy; p != nil {
		oneOf(&f, "spec.internalTrafficPolicy", *p, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	f.port("spec.healthCheckNodePort", spec.HealthCheckNodePort, 0)
	for i, r := range spec.LoadBalancerSourceRanges {
		if _, err := netip.ParsePrefix(strings.TrimSpace(r)); err != nil {
			f.add(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), "%q is no prefix", r)
		}
	}
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		at := fmt.Sprintf("status.loadBalancer.ingress[%d].", i)
		if _, err := netip.ParseAddr(ingress.IP); err != nil && ingress.IP != "" {
			f.add(at+"ip", "%q is no address", ingress.IP)
		}
		if ingress.IPMode != nil {
			oneOf(&f, at+"ipMode", *ingress.IPMode, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)
		}
	}
	return f
}

// EndpointSlice is Service for an EndpointSlice.
func EndpointSlice(s *discoveryv1.EndpointSlice) []Fault {
	var f faults
	if s.AddressType == "" {
		f.add("addressType", "required")
	}
	oneOf(&f, "addressType", s.AddressType, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	for i, p := range s.Ports {
		at := fmt.Sprintf("ports[%d].", i)
		if p.Port != nil {
			f.port(at+"port", *p.Port, 0)
		}
		if p.Protocol != nil {
			oneOf(&f, at+"protocol", *p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		}
	}
	for i, e := range s.Endpoints {
		if len(e.Addresses) == 0 {
			f.add(fmt.Sprintf("endpoints[%d].addresses", i), "required")
			continue
		}
		at := fmt.Sprintf("endpoints[%d].addresses[0]", i)
		switch s.AddressType {
		case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
			f.address(at, e.Addresses[0], false)
			if a, err := netip.ParseAddr(e.Addresses[0]); err == nil && a.Unmap().Is4() != (s.AddressType == discoveryv1.AddressTypeIPv4) {
				f.add(at, "%s is no address of addressType %s", a, s.AddressType)
			}
		}
	}
	return f
}

// faults collects faults.
type faults []Fault

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, Fault{Field: field, Reason: fmt.Sprintf(format, args...)})
}

// oneOf notes a value that is set and is none of the choices.
func oneOf[T ~string](f *faults, field string, value T, choices ...T) {
	if value != "" && !slices.Contains(choices, value) {
		f.add(field, "%q is not supported", value)
	}
}

// address notes an address that is none, or one that no packet of another host can have.
func (f *faults) address(field, text string, optional bool) {
	if text == "" && optional {
		return
	}
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil || a.Zone() != "":
		f.add(field, "%q is no address", text)
	case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast():
		f.add(field, "%s is unspecified, loopback, link-local or multicast", a)
	}
}

func (f *faults) port(field string, n, least int32) {
	if n < least || n > 65535 {
		f.add(field, "%d is not between %d and 65535", n, cmp.Or(least, 1))
	}
}
