package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/model"
)

// defaultAffinity is the API's default of sessionAffinityConfig.clientIP.timeoutSeconds.
const defaultAffinity = 3 * time.Hour

// spec is the part of a Service that a node needs. It is not modified.
type spec struct {
	name    types.NamespacedName
	created time.Time
	ports   []port
	// addresses are sorted by rank: of two kinds with one address, the first is served.
	addresses []address
	// families are those of the cluster IPs: Services have no addresses of other families.
	families                     []family
	affinity                     time.Duration
	internalLocal, externalLocal bool
	// ranges are loadBalancerSourceRanges, if restricted.
	ranges     []netip.Prefix
	restricted bool
	// health is the healthCheckNodePort, or zero.
	health   uint16
	problems []model.Problem
}

// port is a port of a Service. Index is its place in spec.ports.
type port struct {
	index          int
	name           string
	protocol       model.Protocol
	port, nodePort uint16
}

// address is an address of a Service. Field is its place in the object.
type address struct {
	netip.Addr
	kind  model.FrontendKind
	field string
}

// rank orders claims: the API server allocates cluster IPs, controllers write load balancers' addresses, users write externalIPs.
func (a address) rank() int {
	return slices.Index([]model.FrontendKind{model.ClusterIP, model.LoadBalancerIP, model.ExternalIP, model.NodePort}, a.kind)
}

// family is 4 or 6.
type family uint8

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return 4
	}
	return 6
}

func (f family) unspecified() netip.Addr {
	if f == 4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// parse returns the spec of a Service, or nil if no node serves it.
func parse(s *corev1.Service) *spec {
	if s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	for _, label := range []string{model.ServiceProxyName, corev1.IsHeadlessService} {
		if _, labelled := s.Labels[label]; labelled {
			return nil
		}
	}
	p := &spec{name: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, created: s.CreationTimestamp.Time}
	p.parsePorts(s)
	p.parseAddresses(s)
	p.parseRanges(s)
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		p.affinity = defaultAffinity
		if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			p.affinity = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
		}
	}
	internal := s.Spec.InternalTrafficPolicy
	p.internalLocal = internal != nil && *internal == corev1.ServiceInternalTrafficPolicyLocal
	reachable := s.Spec.Type == corev1.ServiceTypeLoadBalancer || s.Spec.Type == corev1.ServiceTypeNodePort || len(s.Spec.ExternalIPs) > 0
	p.externalLocal = reachable && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if p.externalLocal && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		p.health = uint16(s.Spec.HealthCheckNodePort)
	}
	return p
}

func (p *spec) problem(field, format string, args ...any) {
	p.problems = append(p.problems, p.newProblem(field, format, args...))
}

func (p *spec) newProblem(field, format string, args ...any) model.Problem {
	return model.Problem{Object: refOf(p.name), Field: field, Reason: fmt.Sprintf(format, args...)}
}

func refOf(n types.NamespacedName) model.ObjectRef {
	return model.ObjectRef{Kind: "Service", Namespace: n.Namespace, Name: n.Name}
}

func (p *spec) parsePorts(s *corev1.Service) {
	type number struct {
		protocol model.Protocol
		port     uint16
	}
	seen := map[number]bool{}
	for i, sp := range s.Spec.Ports {
		protocol, err := model.ParseProtocol(cmp.Or(string(sp.Protocol), "TCP"))
		if err != nil {
			p.problem(fmt.Sprintf("spec.ports[%d].protocol", i), "%v: not served", err)
			continue
		}
		at := number{protocol, uint16(sp.Port)}
		if seen[at] {
			p.problem(fmt.Sprintf("spec.ports[%d]", i), "%d/%s is given twice: the first is served", sp.Port, protocol)
			continue
		}
		seen[at] = true
		served := port{index: i, name: sp.Name, protocol: protocol, port: at.port}
		if s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			served.nodePort = uint16(sp.NodePort)
		}
		p.ports = append(p.ports, served)
	}
}

func (p *spec) parseAddresses(s *corev1.Service) {
	add := func(kind model.FrontendKind, text, field string) {
		a, err := netip.ParseAddr(text)
		a = a.Unmap()
		switch {
		case err != nil || a.Zone() != "":
			p.problem(field, "%q is no address: not served", text)
		case kind == model.ClusterIP && !slices.Contains(p.families, familyOf(a)):
			p.families = append(p.families, familyOf(a))
			fallthrough
		case kind == model.ClusterIP || slices.Contains(p.families, familyOf(a)):
			p.addresses = append(p.addresses, address{a, kind, field})
		default:
			p.problem(field, "%s: the Service has no cluster IP of this family: not served", a)
		}
	}
	clusterIPs := s.Spec.ClusterIPs
	if len(clusterIPs) == 0 {
		clusterIPs = []string{s.Spec.ClusterIP}
	}
	for i, text := range clusterIPs {
		add(model.ClusterIP, text, fmt.Sprintf("spec.clusterIPs[%d]", i))
	}
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP != "" && (ingress.IPMode == nil || *ingress.IPMode == corev1.LoadBalancerIPModeVIP) {
			add(model.LoadBalancerIP, ingress.IP, fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i))
		}
	}
	for i, text := range s.Spec.ExternalIPs {
		add(model.ExternalIP, text, fmt.Sprintf("spec.externalIPs[%d]", i))
	}
}

// parseRanges takes the source ranges. A range of everything admits everybody, of both families. The API server accepts spaces around a range.
func (p *spec) parseRanges(s *corev1.Service) {
	for i, text := range s.Spec.LoadBalancerSourceRanges {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		p.restricted = true
		r, err := netip.ParsePrefix(text)
		if err != nil {
			p.problem(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), "%q is no prefix: it admits nobody", text)
			continue
		}
		p.ranges = append(p.ranges, r.Masked())
	}
	if slices.ContainsFunc(p.ranges, func(r netip.Prefix) bool { return r.Bits() == 0 }) {
		p.ranges, p.restricted = nil, false
	}
	slices.SortFunc(p.ranges, netip.Prefix.Compare)
	p.ranges = slices.Compact(p.ranges)
}

// sources returns the clients that may use a load balancer's address of the family: nil for all.
func (p *spec) sources(f family) []netip.Prefix {
	if !p.restricted {
		return nil
	}
	all := []netip.Prefix{}
	for _, r := range p.ranges {
		if familyOf(r.Addr()) == f {
			all = append(all, r)
		}
	}
	return all
}

// older reports whether the Service wins over another one that claims the same.
func (p *spec) older(o *spec) bool {
	return cmp.Or(p.created.Compare(o.created), cmp.Compare(p.name.Namespace, o.name.Namespace), cmp.Compare(p.name.Name, o.name.Name)) < 0
}
