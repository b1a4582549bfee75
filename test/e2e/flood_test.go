package e2e

import (
	"context"
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// flooded is a cluster in which x/a may send to all pods, and x/b denies its packets.
const flooded = `
{kind: Pod, metadata: {namespace: x, name: e, labels: {pod: e}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: f, labels: {pod: f}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]}]}}
---
{kind: NetworkPolicy, metadata: {namespace: x, name: a-sends}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{}]}}
---
{kind: NetworkPolicy, metadata: {namespace: x, name: b-takes}, spec: {podSelector: {matchLabels: {pod: b}}, policyTypes: [Ingress],
  ingress: [{from: [{podSelector: {matchLabels: {pod: e}}}]}]}}
`

const (
	// floodRate is in packets a second. Each packet begins a new connection.
	floodRate = 20000
	floodTime = 4 * time.Second
)

// TestDeniedFlood: a pod sends the first packets of 20,000 connections a second to a pod
// that denies them. Other pods of the node lose no new connection, established connections
// of the flooding pod go on, and the tables of connections stay below their limit.
func TestDeniedFlood(t *testing.T) {
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) { deniedFlood(t, newLabWith(t, lab.Config{Backend: backend}), backend) })
	}
}

func deniedFlood(t *testing.T, l *lab.Lab, backend string) {
	set(t, l, state(t, threeNodes, flooded))
	expect(t, l, false, "x/a", "x/b", model.TCP, 80)
	expect(t, l, true, "x/e", "x/b", model.TCP, 80)
	a, b := l.Pod(pod("a")), l.Pod(pod("b"))
	open := dial(t, l, "a", "e", model.IPv4)
	talk(t, open, "before the flood")
	frame := synFrames(ethernet(podMAC(t, a), podMAC(t, b), etherIPv4, nil), a.Address(model.IPv4), b.Address(model.IPv4))
	out := openWire(t, a.Namespace(), "eth0")
	before, dropped := entries(t, a.Node()), metric(t, a.Node(), rateMetric)

	ended := make(chan int)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), floodTime)
	defer cancel()
	go func() {
		sent := 0
		for ctx.Err() == nil {
			for due := int(time.Since(began).Seconds() * floodRate); sent < due; sent++ {
				// A full queue drops packets, as a busier machine would.
				_, _ = unix.Write(out.fd, frame(sent))
			}
			time.Sleep(time.Millisecond)
		}
		ended <- sent
	}()
	rounds, lost := 0, 0
	var probes []lab.Probe
	for _, f := range model.Families() {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			for _, ends := range [][2]string{{"x/e", "x/f"}, {"x/f", "x/e"}, {"x/c", "x/e"}} {
				probes = append(probes, lab.Probe{From: ends[0], To: ends[1], Protocol: protocol, Port: 80, Family: f})
			}
		}
	}
	for ctx.Err() == nil {
		rounds++
		for _, r := range l.Probe(t.Context(), probes, patience) {
			if !r.Through {
				lost++
				t.Errorf("round %d: %s -> %s %s IPv%s: %s", rounds, r.Probe.From, r.Probe.To, r.Probe.Protocol, r.Probe.Family, r.Reason)
			}
		}
		talk(t, open, "during the flood")
	}
	sent := <-ended
	took := time.Since(began)
	grown := entries(t, a.Node()) - before
	over := 0.0
	// A probe leaves an entry in the kernel, in the switch, or in both.
	bound := 2000 + 2*rounds*len(probes)
	if backend == config.OpenFlow {
		bound += int(policyflows.NewConnectionsPerSecond * (1 + took.Seconds()))
		eventually.True(t, "dropped packets in the metrics", func() bool {
			over = metric(t, a.Node(), rateMetric) - dropped
			return over > 0 || sent < bound
		})
	}
	t.Logf("%d packets in %v, %d entries more (at most %d), %.0f packets over the rate; %d rounds of %d new connections, %d lost",
		sent, took.Round(time.Millisecond), grown, bound, over, rounds, len(probes), lost)
	if grown > bound {
		t.Errorf("%d entries more, want at most %d", grown, bound)
	}
	talk(t, open, "after the flood")
	expect(t, l, true, "x/a", "x/e", model.TCP, 80)
}

const rateMetric = `felixlike_dropped_packets_total{reason="new-connection-rate"}`

// synFrames returns a function that makes the n-th of many frames. Each one opens
// another TCP connection. It reuses its memory.
func synFrames(header []byte, src, dst netip.Addr) func(n int) []byte {
	tcp := make([]byte, 20)
	tcp[12], tcp[13] = 5<<4, 2 // SYN
	binary.BigEndian.PutUint16(tcp[14:], 1024)
	return func(n int) []byte {
		const ports = 60000
		binary.BigEndian.PutUint16(tcp[0:], uint16(2000+n%ports))
		binary.BigEndian.PutUint16(tcp[2:], uint16(1000+n/ports))
		binary.BigEndian.PutUint16(tcp[16:], 0)
		_, packet := ip(src, dst, unix.IPPROTO_TCP, 64, tcp, 16)
		return append(header[:etherLen:etherLen], packet...)
	}
}

// entries counts the connections that a node's kernel and switch know.
func entries(t *testing.T, n *lab.Node) int {
	t.Helper()
	out, err := exec.Command("nsenter", "--net="+n.Namespace().Path(), "cat", "/proc/sys/net/netfilter/nf_conntrack_count").Output()
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	if datapath := os.Getenv(datapathEnv); datapath != "" && datapath != "netdev" {
		return kernel
	}
	inSwitch, err := vswitchd.New(n.OVSDir(), "netdev").DumpConntrack(t.Context(), pipeline.Zone)
	if err != nil {
		t.Fatal(err)
	}
	return kernel + len(inSwitch)
}
