package carry

import (
	"net"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// TestServicesInTheBridgeGoOn: connections that the bridge leads to Services go on at changes of the backend, and those that the host led. The
// host has no entry of what the bridge leads.
func TestServicesInTheBridgeGoOn(t *testing.T) {
	c := newCluster(t)
	c.node.Services = true
	c.steer(pipeline.Full)
	var idle []*stream
	var udp []*datagrams
	begin := func() {
		for _, f := range [][4]string{{service4, podB4, outside4, world4}, {service6, podB6, outside6, world6}} {
			at, backend := net.JoinHostPort(f[0], port(servicePort)), net.JoinHostPort(f[1], port(backendPort))
			idle = append(idle, c.open("to a pod "+f[0], "a", at, "b", backend),
				c.open("to the world "+f[2], "a", net.JoinHostPort(f[2], port(servicePort)), "world", net.JoinHostPort(f[3], port(backendPort))))
			pushed := c.open("pushed "+f[0], "a", at, "b", backend)
			pushed.push(pushed.server, pushed.client)
			idle = append(idle, pushed)
			if len(udp) < 2 {
				udp = append(udp, c.datagrams("udp "+f[0], "a", at, "b", backend))
			}
		}
	}
	alive := func(where string) {
		t.Helper()
		for _, s := range idle {
			if strings.HasPrefix(s.name, "pushed") {
				s.alive(t)
			} else {
				s.ask(t)
			}
		}
		for _, d := range udp {
			d.alive(t)
		}
		if t.Failed() {
			t.Fatal(where)
		}
	}
	begin()
	alive("in the bridge")
	for _, service := range []string{service4, service6, outside4, outside6} {
		for _, line := range c.conntrackEntries("-d", service) {
			t.Errorf("the host has an entry: %s", line)
		}
	}
	for range 2 {
		c.toKernel()
		alive("in the kernel")
		if r := c.carry(c.carrier.ToKernelBehind); r.Written != 0 {
			t.Errorf("to the kernel once more: %+v, want nothing written", r)
		}
		begin()
		alive("begun in the kernel")
		c.toSwitch()
		alive("in the bridge, by way of the host")
		if r := c.carry(c.carrier.ToSwitch); r.Written != 0 {
			t.Errorf("to the switch once more: %+v, want nothing written", r)
		}
		begin()
		alive("begun in the bridge")
	}
}
