package serviceproxy

import (
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// translator says where connections of pods to an address of a Service get their endpoint, control.InBridge or control.ByHost, and why by the host. Both are
// empty under another backend than openflow, where it is always the host. It belongs to the loop.
func translator(v *driver.View, base pipeline.Node) func(*model.ServicePort, *model.Frontend) (where, why string) {
	own := v.Model().Nodes[v.Node()]
	always := func(where, why string) func(*model.ServicePort, *model.Frontend) (string, string) {
		return func(*model.ServicePort, *model.Frontend) (string, string) { return where, why }
	}
	switch {
	case v.Backend() == nil || v.Backend().Name() != config.OpenFlow:
		return always("", "")
	case v.Changing():
		return always(control.ByHost, "the backend is being changed")
	case !base.Services:
		return always(control.ByHost, "the bridge has the kernel's datapath")
	case own == nil:
		return always(control.ByHost, "the Node is not known yet")
	}
	node := managers.ServicesNode(base, own, v.Model().Host.Addresses, v.Model().Services.Prefixes)
	return func(p *model.ServicePort, f *model.Frontend) (string, string) {
		if why := managers.LeftToHost(node, p, f); why != "" {
			return control.ByHost, why
		}
		return control.InBridge, ""
	}
}
