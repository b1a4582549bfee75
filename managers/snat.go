package managers

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// setOutside takes the next hop to the outside from those that are known.
func (m *ForwardingManager) setOutside(known []model.Hop) {
	var now model.Hop
	for _, h := range known {
		if h.Address == model.Outside() {
			now = h
		}
	}
	if m.snat != nil && now != m.outside {
		m.outside, m.baseDirty = now, true
	}
}

// translation completes the configured translation by the switch for this node as it is now; nil without it.
func (m *ForwardingManager) translation() *pipeline.SNAT {
	if m.snat == nil {
		return nil
	}
	problem := func(field, reason string) {
		m.unroutable.Store(&model.Problem{Object: model.ObjectRef{Kind: "Node", Name: m.node}, Field: field, Reason: "snat openflow: " + reason})
	}
	now := *m.snat
	if now.Address = m.self.Address(model.IPv4).Unmap(); !now.Address.IsValid() {
		problem("status.addresses", "the node has no IPv4 InternalIP, so pods do not reach the outside by IPv4")
		return nil
	}
	for _, e := range m.egresses {
		for _, pod := range e.Pods {
			if pod.Is4() && hasPod(m.self, pod) && !slices.Contains(now.Egresses, pod) {
				now.Egresses = append(now.Egresses, pod)
			}
		}
	}
	slices.SortFunc(now.Egresses, netip.Addr.Compare)
	switch {
	case m.outside.MAC == model.MAC{}:
		problem("", "there is no default route, or its next hop does not answer, so pods do not reach the outside by IPv4")
	case m.outside.Interface != now.Bridge:
		problem("", fmt.Sprintf("the default route leads by interface %s, not by the uplink, so pods do not reach the outside by IPv4", m.outside.Interface))
	default:
		m.unroutable.Store(nil)
		now.MAC, now.Router = net.HardwareAddr(m.outside.InterfaceMAC[:]), net.HardwareAddr(m.outside.MAC[:])
	}
	return &now
}

// Problems returns why pods do not reach the outside. It may be called from any goroutine.
func (m *ForwardingManager) Problems() []model.Problem {
	if p := m.unroutable.Load(); p != nil {
		return []model.Problem{*p}
	}
	return nil
}
