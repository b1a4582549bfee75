package serviceproxy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/service"
	"github.com/felixlike/felixlike/internal/socketapi"
	"github.com/felixlike/felixlike/model"
)

// Services returns how this node serves all Services, or the one with the name namespace/name.
func (p *Proxy) Services(ctx context.Context, name string) (control.Services, error) {
	all := control.Services{Node: p.Node, Proxy: true, Services: []control.Service{}}
	missing := false
	err := p.view.Do(ctx, func() {
		names := p.engine.Names()
		if name != "" {
			names = slices.DeleteFunc(names, func(n types.NamespacedName) bool { return n.String() != name })
			missing = len(names) == 0
		}
		problems := map[model.ObjectRef][]model.Problem{}
		for _, n := range p.problems() {
			problems[n.Object] = append(problems[n.Object], n.Problem)
		}
		translates := translator(p.view, p.Bridge)
		for _, n := range names {
			s := control.Service{Namespace: n.Namespace, Name: n.Name, Problems: problems[serviceRef(n.Namespace, n.Name)]}
			for _, port := range p.engine.Service(n) {
				if port.Served != nil {
					s.Ports = append(s.Ports, portOf(port, translates))
				}
			}
			all.Services = append(all.Services, s)
		}
	})
	if err == nil && missing {
		err = socketapi.Refuse(socketapi.Invalid, "service %s: this node serves no such Service: it does not exist, or has no cluster IP, or belongs to another proxy", name)
	}
	return all, err
}

// served adds the ports to the model that tools get.
func (p *Proxy) served(m *control.Model) {
	m.ServicesKnown = p.view.SourceSynced()
	if !m.ServicesKnown {
		return // the table is that of an earlier process
	}
	for _, n := range p.engine.Names() {
		m.ServicePorts = append(m.ServicePorts, p.engine.Served(n)...)
	}
}

// portOf returns a port for the API.
func portOf(p service.Port, translates func(*model.ServicePort, *model.Frontend) (where, why string)) control.ServicePort {
	out := control.ServicePort{Name: p.Name, Protocol: p.Served.ID.Protocol, Port: p.Served.ID.Port, AffinitySeconds: int(p.Served.Affinity.Seconds())}
	for i := range p.Served.Frontends {
		f := &p.Served.Frontends[i]
		one := control.ServiceFrontend{Kind: kindOf(f.Kind), Address: f.Addr, Port: f.Port}
		if len(f.Endpoints) == 0 {
			one.Empty = [...]string{"refuse", "drop"}[f.Empty]
		}
		if f.Sources != nil {
			one.Sources = &f.Sources
		}
		one.TranslatedBy, one.ByHostBecause = translates(p.Served, f)
		out.Frontends = append(out.Frontends, one)
	}
	for _, e := range p.Endpoints {
		out.Endpoints = append(out.Endpoints, control.ServiceEndpoint{Address: e.AddrPort, Node: e.Node, Local: e.Local, Inside: said(e.Internal), Outside: said(e.External)})
	}
	if !slices.ContainsFunc(p.Served.Frontends, func(f model.Frontend) bool { return f.Kind != model.ClusterIP }) {
		for i := range out.Endpoints {
			out.Endpoints[i].Outside = "" // nobody outside the cluster comes here
		}
	}
	return out
}

func said(why string) string {
	if why == "" {
		return control.EndpointUsed
	}
	return why
}

func kindOf(k model.FrontendKind) string {
	switch k {
	case model.ClusterIP:
		return "clusterIP"
	case model.ExternalIP:
		return "externalIP"
	case model.LoadBalancerIP:
		return "loadBalancer"
	case model.NodePort:
		return "nodePort"
	}
	return strings.ToLower(fmt.Sprintf("kind %d", k))
}
