package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab/probe"
)

// Kinds of a probe's ends.
const (
	EndNode = "node"
	EndIP   = "ip"
	EndPod  = "pod"
)

// Probe asks whether a new connection, or a datagram and its answer, gets from
// one end to the other. An end is "namespace/pod", "node:NAME" (the node's own
// address) or "ip:ADDRESS" (a host outside the cluster).
type Probe struct {
	From     string         `json:"from"`
	To       string         `json:"to"`
	Protocol model.Protocol `json:"protocol"`
	Port     uint16         `json:"port"`
	// Family is the address family to use; IPv4 if zero.
	Family model.Family `json:"family"`
}

// Result is the result of a probe.
type Result struct {
	Probe Probe `json:"probe"`
	// Tried is false when the probe could not be sent; Reason is the reason.
	Tried    bool          `json:"tried"`
	Through  bool          `json:"through"`
	Reason   string        `json:"reason"`
	RTT      time.Duration `json:"rttNanoseconds,omitempty"`
	Attempts int           `json:"attempts"`
}

// Char is the result in one character: 1 through, 0 not through, - not tried.
func (r Result) Char() byte {
	switch {
	case !r.Tried:
		return '-'
	case r.Through:
		return '1'
	}
	return '0'
}

// end is an end of a probe as the lab finds it.
type end struct {
	station *probe.Station
	addr    netip.Addr
	// serves reports that the lab serves any port there:
	// nodes and hosts outside declare no ports.
	serves bool
}

// Probe tries all probes side by side and returns their results in order.
// Blocked means that there was no answer within the timeout (one second if
// zero), or a refusal.
func (l *Lab) Probe(ctx context.Context, probes []Probe, timeout time.Duration) []Result {
	results := make([]Result, len(probes))
	var flows []probe.Flow
	var index []int
	l.mu.Lock()
	for i, p := range probes {
		results[i] = Result{Probe: p}
		flow, err := l.flowLocked(p)
		if err != nil {
			results[i].Reason = err.Error()
			continue
		}
		flows, index = append(flows, flow), append(index, i)
	}
	l.mu.Unlock()
	for i, o := range probe.Run(ctx, flows, probe.Options{Timeout: timeout, Rate: l.config.ProbeRate}) {
		r := &results[index[i]]
		r.Tried, r.Through, r.Reason, r.RTT, r.Attempts = o.Err == nil, o.Through, o.Reason, o.RTT, o.Attempts
	}
	return results
}

func (l *Lab) flowLocked(p Probe) (probe.Flow, error) {
	if p.Family == 0 {
		p.Family = model.IPv4
	}
	from, err := l.endLocked(p.From, p.Family)
	if err != nil {
		return probe.Flow{}, err
	}
	to, err := l.endLocked(p.To, p.Family)
	if err != nil {
		return probe.Flow{}, err
	}
	target := netip.AddrPortFrom(to.addr, p.Port)
	if to.serves {
		if err := to.station.Serve(p.Protocol, target); err != nil {
			return probe.Flow{}, err
		}
	}
	return probe.Flow{From: from.station, Source: from.addr, Target: target, Protocol: p.Protocol}, nil
}

// Host returns the namespace and the address of a probe's end, for tests that
// send packets of their own; a host outside the cluster is made.
func (l *Lab) Host(text string, family model.Family) (*namespace.Namespace, netip.Addr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, err := l.endLocked(text, family)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	return e.station.Namespace(), e.addr, nil
}

func (l *Lab) endLocked(text string, family model.Family) (end, error) {
	kind, name, err := ParseEnd(text)
	if err != nil {
		return end{}, err
	}
	var e end
	switch kind {
	case EndNode:
		n := l.nodes[name]
		if n == nil {
			return end{}, fmt.Errorf("%s: no such node", text)
		}
		e = end{station: n.station, addr: n.Address(family), serves: true}
	case EndPod:
		ns, pod, _ := strings.Cut(name, "/")
		p := l.pods[model.PodID{Namespace: ns, Name: pod}]
		if p == nil {
			return end{}, fmt.Errorf("%s: no such pod", text)
		}
		e = end{station: p.station, addr: p.Address(family)}
	case EndIP:
		addr, err := netip.ParseAddr(name)
		if err != nil {
			return end{}, fmt.Errorf("%s: %w", text, err)
		}
		if family == model.IPv6 {
			addr = Map(addr)
		}
		if e, err = l.hostLocked(addr); err != nil {
			return end{}, err
		}
	}
	if !e.addr.IsValid() || model.FamilyOf(e.addr) != family {
		return end{}, fmt.Errorf("%s has no IPv%s address", text, family)
	}
	return e, nil
}

// hostLocked finds the owner of an address: a node, a pod, or else a host outside
// the cluster, which it creates.
func (l *Lab) hostLocked(a netip.Addr) (end, error) {
	for _, n := range l.nodes {
		if n.Address(model.FamilyOf(a)) == a {
			return end{station: n.station, addr: a, serves: true}, nil
		}
	}
	for _, p := range l.pods {
		if p.Address(model.FamilyOf(a)) == a {
			return end{station: p.station, addr: a}, nil
		}
	}
	if err := l.fabric.host(a); err != nil {
		return end{}, err
	}
	return end{station: l.fabric.station, addr: a, serves: true}, nil
}
