package carry

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// TestMovedConnectionThroughServiceGoesOn: the bridge gives a connection through a Service another port, if the pod uses its port directly to the endpoint as well.
func TestMovedConnectionThroughServiceGoesOn(t *testing.T) {
	c := newCluster(t)
	c.node.Services = true
	c.steer(pipeline.Full)
	l := c.listen("b", net.JoinHostPort(podB4, port(backendPort)))
	defer func() { _ = l.Close() }()
	from := func(source int, name, to string) *stream {
		s := &stream{name: name, stop: make(chan struct{})}
		inNamespace(t, c.ns("a"), func() {
			d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(podA4), Port: source}, Control: func(_, _ string, conn syscall.RawConn) error {
				return conn.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			}}
			var err error
			if s.client, err = d.Dial("tcp", to); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		})
		c.accept(s, l)
		return s
	}
	from(7007, "directly", net.JoinHostPort(podB4, port(backendPort)))
	through := from(7007, "through the Service", net.JoinHostPort(service4, port(servicePort)))
	if moved, err := c.carrier.client.DumpConntrack(c.Context(), pipeline.MovedZone); err != nil || len(moved) != 1 {
		t.Fatalf("%d connections have another port, %v", len(moved), err)
	}
	for _, step := range []struct {
		where string
		to    func()
	}{{"in the bridge", func() {}}, {"in the kernel", c.toKernel}, {"in the bridge, by way of the host", c.toSwitch}, {"in the kernel again", c.toKernel}} {
		step.to()
		through.name = "through the Service, " + step.where
		through.ask(t)
	}
	c.toSwitch()
	from(7008, "directly", net.JoinHostPort(podB4, port(backendPort)))
	through = from(7008, "through the Service, when another program serves it", net.JoinHostPort(service4, port(servicePort)))
	c.leaveServices()
	through.ask(t)
}

// TestEndedWhileTheHostLed: a connection through a Service that ends while the host leads leaves nothing in the bridge that would lead the next one from its
// port to the old endpoint.
func TestEndedWhileTheHostLed(t *testing.T) {
	c := newCluster(t)
	c.node.Services = true
	c.steer(pipeline.Full)
	l := c.listen("b", net.JoinHostPort(podB4, port(backendPort)))
	defer func() { _ = l.Close() }()
	s := &stream{name: "through the Service", stop: make(chan struct{})}
	inNamespace(t, c.ns("a"), func() {
		var err error
		if s.client, err = net.DialTimeout("tcp", net.JoinHostPort(service4, port(servicePort)), 5*time.Second); err != nil {
			t.Fatal(err)
		}
	})
	c.accept(s, l)
	translated := func(when string, want int) {
		t.Helper()
		all, err := c.carrier.client.DumpConntrack(c.Context(), pipeline.ServiceZone)
		if err != nil || len(all) != want {
			t.Errorf("%s: the bridge has %d entries, want %d (%v): %+v", when, len(all), want, err, all)
		}
	}
	s.ask(t)
	translated("in the bridge", 1)
	c.toKernel()
	s.ask(t)
	translated("while the host leads", 1)
	// A reset has no answer, which would begin an entry again.
	if err := s.client.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = s.client.Close()
	if _, err := s.server.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Fatalf("the server reads: %v", err)
	}
	inNamespace(t, c.NS, func() { command(t, "conntrack", "-F") }) // its entry ends there as well
	c.toSwitch()
	translated("ended", 0)
}
