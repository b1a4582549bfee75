package preview

import (
	"net/netip"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// Connections adds the established connections that the change affects.
func (p *Preview) Connections(o control.Objects, c Change, m *control.Model, established []control.Connection) error {
	after, _, err := c.apply(o)
	if err != nil {
		return err
	}
	now, then := clusterOf(o, policiesOf(o)), clusterOf(o, after)
	now.Hosts = hostsOf(o, m)
	then.Hosts = now.Hosts
	names := map[netip.Addr]string{}
	for _, pod := range o.Pods {
		for _, f := range model.Families() {
			if a := addressOf(pod, f); a.IsValid() && selectable(pod) {
				names[a] = podName(pod)
			}
		}
	}
	name := func(a netip.Addr) string {
		if names[a] != "" {
			return names[a]
		}
		return a.String()
	}
	p.Looked = true
	for _, k := range established {
		packet := oracle.Packet{Source: k.Source, Destination: k.Destination, Protocol: k.Protocol, Port: k.Port}
		if names[k.Source] == "" && names[k.Destination] == "" || !now.Evaluate(packet).Allowed {
			continue
		}
		if v := then.Evaluate(packet); !v.Allowed {
			p.Outlived = append(p.Outlived, Outlived{k, name(k.Source), name(k.Destination), because(v)})
		}
	}
	return nil
}

func clusterOf(o control.Objects, policies []anyPolicy) *oracle.Cluster {
	c := &oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods}
	c.Antrea.Isolation = o.Antrea.Isolation
	addPolicies(c, policies)
	return c
}
