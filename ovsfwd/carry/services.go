package carry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
)

// The bridge leads connections of pods to Services to their endpoints: a zone of its own has them with the Service's address, and the zone of policy
// with the endpoint's. The kernel has one entry for both, a translated one, because there the host leads them.
//
//	to the kernel    one entry that is translated as the bridge does it
//	to the switch    as any connection that the host translates. It goes on through the host
//
// A connection to an endpoint that pods reach by way of the host has an entry in the kernel already, with the endpoint's address. Both entries have the
// same answers, so ToKernelBehind exchanges them in one step. After pipeline.CloseServices, the bridge sends the host no packet that would bring back the old one.

func serviceLabel() conntrack.Label {
	l := pipeline.ServiceLabel()
	return conntrack.Label{High: l.Hi, Low: l.Lo}
}

// throughService reports whether the bridge leads a connection of the zone of policy to an endpoint.
func throughService(k *conntrack.Connection) bool {
	l := serviceLabel()
	return k.Label.High&l.High == l.High && k.Label.Low&l.Low == l.Low
}

// byEndpoint returns the connections to Services by the direction that policy sees. moved are those with another port (pipeline.MovedZone), which policy sees.
func byEndpoint(services, moved []conntrack.Connection) map[conntrack.Tuple]*conntrack.Connection {
	all := make(map[conntrack.Tuple]*conntrack.Connection, len(services))
	for i := range services {
		all[services[i].Reply.Reverse()] = &services[i]
	}
	for i := range moved {
		if through := all[moved[i].Original]; through != nil {
			all[moved[i].Reply.Reverse()] = through
		}
	}
	return all
}

// service is what the kernel should have for a connection through a Service.
type service struct {
	// original is the direction with the Service's address.
	original conntrack.Tuple
	// reply is the direction of answers: the host may hide the client on the way to the endpoint.
	reply conntrack.Tuple
	// led reports that the host is to have the entry now, instead of the one, if any, to the endpoint.
	led     bool
	instead *conntrack.Connection
}

// exchanged notes an entry of the kernel to an endpoint that makes room for that of the same connection with the Service's address, and reports whether it is one.
func (w *wanted) exchanged(k *conntrack.Connection) bool {
	i, known := w.at[k.Original]
	if !known || w.services[i] == nil {
		return false
	}
	to := w.services[i]
	if !to.led {
		to.reply, to.led = k.Reply, true // by way of the host
	}
	to.instead = k
	return true
}

// throughService reports whether an entry of the kernel has the addresses that the client of a connection through a Service uses.
func (w *wanted) throughService(k *conntrack.Connection) bool {
	_, known := w.byService[k.Original]
	return known
}

// leadsElsewhere reports whether such an entry has another endpoint.
func (w *wanted) leadsElsewhere(k *conntrack.Connection) bool {
	i := w.byService[k.Original]
	return w.services[i].led && (k.Reply.Src != w.list[i].Original.Dst || k.Reply.SrcPort != w.list[i].Original.DstPort)
}

// lead makes the entry of a connection through a Service from that of the connection to its endpoint.
func (to *service) lead(k *conntrack.Connection) {
	k.Original, k.Reply, k.Mark = to.original, to.reply, rules.MarkAllowed|rules.MarkService
}

// ledHere returns the connections of the kernel that the bridge leads as well, past the host, and entries of the bridge that lead elsewhere than the kernel.
func ledHere(through, services, moved []conntrack.Connection, at map[conntrack.Tuple]*conntrack.Connection, s *sight) (led map[conntrack.Tuple]bool, elsewhere []conntrack.Connection) {
	known := map[conntrack.Tuple]*conntrack.Connection{}
	for i := range services {
		known[services[i].Original] = &services[i]
	}
	others := map[conntrack.Tuple]conntrack.Tuple{}
	for i := range moved {
		others[moved[i].Original] = moved[i].Reply.Reverse()
	}
	led = map[conntrack.Tuple]bool{}
	for i := range through {
		k := &through[i]
		here := known[k.Original]
		if here == nil {
			continue
		}
		sees := here.Reply.Reverse()
		if to, is := others[sees]; is {
			sees = to
		}
		judged := at[sees]
		if here.Reply.Src == k.Reply.Src && here.Reply.SrcPort == k.Reply.SrcPort && judged != nil && isAllowed(judged) && throughService(judged) && !isOver(judged) && s.unseen(judged) {
			led[k.Original] = true
		} else {
			elsewhere = append(elsewhere, *here)
		}
	}
	return led, elsewhere
}

// LeaveServices leaves the connections that the bridge leads to Services to the host, while the bridge goes on to judge packets. It leads no more then:
// the flows of pipeline.CloseServices are there.
func (c *Carrier) LeaveServices(ctx context.Context) error {
	if _, err := c.ToKernelBehind(ctx); err != nil {
		return err
	}
	if _, err := c.ToSwitchAhead(ctx); err != nil {
		return err
	}
	_, err := c.ForgetInKernel(ctx)
	return err
}

// LeadsServices reports whether the bridge leads connections to Services.
func (c *Carrier) LeadsServices(ctx context.Context) (bool, error) {
	var led []conntrack.Connection
	err := c.withZone(ctx, func(_ *conntrack.Kernel, z zone) (err error) {
		led, _, err = z.services(ctx)
		return err
	})
	return len(led) > 0, err
}

// EndServices forgets those of the connections that the bridge leads to Services that are wrong, and returns their number.
func (c *Carrier) EndServices(ctx context.Context, wrong func(*conntrack.Connection) bool) (int, error) {
	ended := 0
	err := c.withZone(ctx, func(_ *conntrack.Kernel, z zone) error {
		all, _, unread := z.services(ctx)
		n, err := z.dropServices(ctx, slices.DeleteFunc(all, func(k conntrack.Connection) bool { return !wrong(&k) }))
		ended = n
		return errors.Join(unread, err)
	})
	if err != nil {
		return ended, fmt.Errorf("end connections to former endpoints of Services in the bridge: %w", err)
	}
	return ended, nil
}
