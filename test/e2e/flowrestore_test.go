package e2e

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// twoNodes has two pods on a node, and a third on another one.
const twoNodes = `
{kind: Node, metadata: {name: node1}}
---
{kind: Node, metadata: {name: node2}}
---
{kind: Pod, metadata: {namespace: x, name: a, labels: {pod: a}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: b, labels: {pod: b}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: c, labels: {pod: c}}, spec: {nodeName: node2, containers: [{name: c, ports: [{containerPort: 80}]}]}}
`

const (
	// longestGap is the longest pause of an established connection that a restart may
	// cost on the kernel's datapath. An emulated machine takes 0.7 s: Open vSwitch removes
	// the cached flows at the end of the wait, and TCP sends again after 0.2 s and 0.4 s.
	// The goal of 0.1 s is for real machines. Without the wait it is 3 s and more.
	longestGap = time.Second
	// gapFactor bounds a pause by the longest pause of undisturbed connections, on a
	// machine where these pause, too: one that QEMU emulates.
	gapFactor = 4
	// goneFor is the time before the killed one comes back.
	goneFor = 3 * time.Second
)

// TestRestartKeepsConnections kills the switch, the agent, and both on the kernel's
// datapath. Established connections go on by cached flows, denied packets pass at no
// time, and a policy that changes meanwhile counts as in force when it is.
func TestRestartKeepsConnections(t *testing.T) {
	if os.Getenv(datapathEnv) != ovsdb.DatapathSystem {
		t.Skip("the userspace datapath has no flows without ovs-vswitchd (make test-kernel runs this test; TestSwitchCrash and TestRollout are for the userspace datapath)")
	}
	for _, backend := range []string{config.OpenFlow, config.NFTables, config.IPTablesNFT} {
		t.Run(backend, func(t *testing.T) {
			restartKeepsConnections(t, newLabWith(t, lab.Config{Backend: backend}))
		})
	}
}

func restartKeepsConnections(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, twoNodes, onlyFromC))
	r := &restart{T: t, lab: l, node: l.Node("node1")}
	r.flood()
	r.during("nothing", func() { pause(t.Context(), goneFor) })

	r.during("ovs-vswitchd killed", func() {
		r.killSwitch()
		pause(t.Context(), goneFor)
		r.startSwitch()
		r.programmed()
	})
	r.during("agent killed", func() {
		r.must(r.node.KillAgent())
		pause(t.Context(), goneFor)
		r.must(r.node.StartAgent())
		r.must(r.node.Sync(t.Context()))
		if r.awaits() || strings.Contains(r.otherConfig(), ovsdaemon.KeyAwaitFlows) {
			t.Error("the start of an agent has a switch wait that runs")
		}
	})
	r.during("both killed, the agent later", func() {
		r.killSwitch()
		r.must(r.node.KillAgent())
		r.startSwitch()
		pause(t.Context(), goneFor)
		if !r.awaits() {
			t.Error("the switch does not wait for the agent")
		}
		r.must(r.node.StartAgent())
		r.must(r.node.Sync(t.Context()))
		if r.awaits() {
			t.Error("the agent is in sync, and the switch waits")
		}
	})
	r.during("policy changed without a switch", func() {
		r.killSwitch()
		inForce := make(chan error, 1)
		changed := state(t, twoNodes, denyAll)
		go func() { inForce <- l.SetState(t.Context(), changed) }()
		select {
		case err := <-inForce:
			t.Errorf("the policy counts as in force without a switch: %v", err)
			inForce <- nil
		case <-time.After(goneFor):
		}
		r.startSwitch()
		r.must(<-inForce)
		if r.awaits() {
			t.Error("the policy counts as in force, and the switch waits")
		}
	})
	expect(t, l, false, "x/c", "x/a", model.TCP, 80)
	set(t, l, state(t, twoNodes, onlyFromC))
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	if n := r.leaked.Load(); n > 0 {
		t.Errorf("%d of %d denied datagrams got through", n, r.sent.Load())
	}
	t.Logf("%d denied datagrams sent", r.sent.Load())
}

// restart is a node on which the switch and the agent are killed.
type restart struct {
	*testing.T
	lab  *lab.Lab
	node *lab.Node
	// quiet is the longest gap while nothing was killed.
	quiet time.Duration
	// sent counts the denied datagrams, leaked those of them that got through.
	sent, leaked atomic.Int64
}

func (r *restart) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *restart) killSwitch()  { r.Helper(); r.must(r.node.OVS().KillVSwitchd()) }
func (r *restart) startSwitch() { r.Helper(); r.must(r.node.OVS().StartVSwitchd(r.Context())) }

// awaits reports whether the switch uses cached flows from before its start. A switch that
// has not read its database yet knows no command about datapaths, and uses them, too.
func (r *restart) awaits() bool {
	r.Helper()
	awaits, err := vswitchd.New(r.node.OVSDir(), ovsdb.DatapathSystem).AwaitsFlows(r.Context())
	if refused := new(vswitchd.CallError); errors.As(err, &refused) {
		return true
	}
	r.must(err)
	return awaits
}

func (r *restart) otherConfig() string {
	r.Helper()
	return shell(r.T, r.node, "ovs-vsctl --db=unix:"+r.node.OVS().DBSocket()+" get Open_vSwitch . other_config")
}

// programmed waits until the agent has programmed the switch.
func (r *restart) programmed() {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), emulatedSync)
	defer cancel()
	began := time.Now()
	for r.awaits() {
		r.must(ctx.Err())
		pause(ctx, 20*time.Millisecond)
	}
	for !r.serves() {
		r.must(ctx.Err())
		pause(ctx, 500*time.Millisecond)
	}
	r.Logf("the agent has programmed the switch after %s", time.Since(began).Round(time.Millisecond))
}

// serves reports whether the bridge has forwarding flows of the agent.
func (r *restart) serves() bool {
	return strings.Contains(shell(r.T, r.node, "ovs-ofctl -O OpenFlow15 dump-flows unix:"+r.node.OVSDir()+"/"+lab.Bridge+".mgmt || true"), "table=80")
}

// during does something while streams carry data and denied connections are tried, and
// checks the longest gap of the streams.
func (r *restart) during(what string, do func()) {
	r.Helper()
	o := traffic.Options{
		Streams: routes(r.lab, [][2]string{{"c", "a"}, {"a", "b"}}, 80), Denied: routes(r.lab, [][2]string{{"b", "a"}}, 80),
		Patience: time.Minute, Explain: func(err error) string { return whereabouts(r.lab, err) },
	}
	tr := traffic.Start(r.Context(), o)
	for tr.Summary().Blocks < 20*len(o.Streams) {
		r.must(r.Context().Err())
		pause(r.Context(), 20*time.Millisecond)
	}
	do()
	pause(r.Context(), time.Second)
	sum, err := tr.Stop()
	if err != nil {
		r.Errorf("%s: %v", what, err)
	}
	r.Logf("%s: longest gap %s; %d blocks, %d denied attempts", what, sum.Stall.Round(time.Millisecond), sum.Blocks, sum.Denied)
	if r.quiet == 0 {
		r.quiet = sum.Stall
		return
	}
	if limit := max(longestGap, gapFactor*r.quiet); sum.Stall > limit {
		r.Errorf("%s: an established connection paused for %s, longer than %s", what, sum.Stall, limit)
	}
}

// flood sends datagrams that policy denies until the test ends, from both nodes.
func (r *restart) flood() {
	r.Helper()
	const port = 99
	a := r.lab.Pod(pod("a"))
	for _, f := range model.Families() {
		to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.Address(f), port))
		var server *net.UDPConn
		r.must(a.Namespace().Do(func() (err error) {
			server, err = net.ListenUDP("udp", to)
			return err
		}))
		r.Cleanup(func() { server.Close() })
		go func() {
			for buffer := make([]byte, 16); ; r.leaked.Add(1) {
				if _, err := server.Read(buffer); err != nil {
					return
				}
			}
		}()
		for _, from := range []string{"b", "c"} {
			var client *net.UDPConn
			r.must(r.lab.Pod(pod(from)).Namespace().Do(func() (err error) {
				client, err = net.DialUDP("udp", nil, to)
				return err
			}))
			r.Cleanup(func() { client.Close() })
			go func() {
				for {
					if _, err := client.Write([]byte("denied")); err == nil {
						r.sent.Add(1)
					} else if strings.Contains(err.Error(), "closed") {
						return
					}
					time.Sleep(20 * time.Millisecond)
				}
			}()
		}
	}
}
