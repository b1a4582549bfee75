package e2e

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// oneWay are flows of a pod to a host outside that never answers: UDP, echo requests and protocol 99, in both families. Each sends 20
// packets a second with the same ports, so its entry in conntrack never ends.
type oneWay struct {
	sink map[model.Family]netip.Addr

	mu sync.Mutex
	// last are the sources of each flow's last packets, the newest last.
	last map[oneWayFlow][]netip.Addr
}

type oneWayFlow struct {
	family   model.Family
	protocol byte
}

// String is for messages.
func (f oneWayFlow) String() string { return fmt.Sprintf("protocol %d, IPv%s", f.protocol, f.family) }

const (
	oneWayPort = 4999
	// oneWayRun is the number of packets in a row with one source after which a flow has it.
	oneWayRun = 5
)

// startOneWay starts the flows of a pod, which end with the test.
func startOneWay(t *testing.T, l *lab.Lab, p *lab.Pod) *oneWay {
	t.Helper()
	o := &oneWay{sink: map[model.Family]netip.Addr{}, last: map[oneWayFlow][]netip.Addr{}}
	var outside *namespace.Namespace
	rules := "add table inet sink\nadd chain inet sink in { type filter hook input priority -400; }\n"
	for _, f := range model.Families() {
		ns, addr, err := l.Host("ip:203.0.113.77", f)
		if err != nil {
			t.Fatal(err)
		}
		outside, o.sink[f] = ns, addr
		field := map[model.Family]string{model.IPv4: "ip", model.IPv6: "icmpv6 type != { nd-neighbor-solicit, nd-neighbor-advert } ip6"}[f]
		rules += fmt.Sprintf("add rule inet sink in %s daddr %s drop\n", field, addr)
		if f == model.IPv6 {
			rules += fmt.Sprintf("add rule inet sink in meta l4proto != icmpv6 ip6 daddr %s drop\n", addr)
		}
	}
	shellIn(t, outside, "nft -f - <<'END'\n"+rules+"END")
	watched := openWire(t, outside, "br0")
	done := make(chan struct{})
	var all sync.WaitGroup
	t.Cleanup(func() { close(done); all.Wait() })
	all.Go(func() {
		for {
			frame := watched.next(time.Now().Add(200 * time.Millisecond))
			o.arrived(frame)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for f, sink := range o.sink {
		for _, conn := range o.dial(t, p.Namespace(), f, sink) {
			all.Go(func() {
				defer conn.conn.Close()
				for every := time.NewTicker(50 * time.Millisecond); ; {
					_, _ = conn.conn.Write(conn.packet) // an error is that of a packet before
					select {
					case <-done:
						every.Stop()
						return
					case <-every.C:
					}
				}
			})
		}
	}
	return o
}

type oneWayConn struct {
	conn   net.Conn
	packet []byte
}

func (o *oneWay) dial(t *testing.T, from *namespace.Namespace, f model.Family, to netip.Addr) []oneWayConn {
	t.Helper()
	echo, icmp := []byte{8, 0, 0, 0, 0x30, 0x39, 0, 1}, "icmp"
	binary.BigEndian.PutUint16(echo[2:], ^(uint16(0x0800) + 0x3039 + 1))
	if f == model.IPv6 { // the kernel writes the checksum
		echo, icmp = []byte{128, 0, 0, 0, 0x30, 0x39, 0, 1}, "ipv6-icmp"
	}
	var all []oneWayConn
	err := from.Do(func() error {
		for _, one := range []struct {
			network string
			packet  []byte
		}{{"ip" + f.String() + ":" + icmp, echo}, {"ip" + f.String() + ":99", []byte("one way")}} {
			conn, err := net.Dial(one.network, to.String())
			if err != nil {
				return err
			}
			all = append(all, oneWayConn{conn, one.packet})
		}
		d := net.Dialer{LocalAddr: &net.UDPAddr{Port: oneWayPort}}
		conn, err := d.Dial("udp"+f.String(), netip.AddrPortFrom(to, oneWayPort).String())
		if err == nil {
			all = append(all, oneWayConn{conn, []byte("one way")})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// arrived notes the source of a frame, if it is of a flow.
func (o *oneWay) arrived(frame []byte) {
	var flow oneWayFlow
	var from, to netip.Addr
	switch {
	case len(frame) >= 34 && frame[12] == 0x08 && frame[13] == 0:
		flow = oneWayFlow{model.IPv4, frame[23]}
		from, _ = netip.AddrFromSlice(frame[26:30])
		to, _ = netip.AddrFromSlice(frame[30:34])
	case len(frame) >= 55 && frame[12] == 0x86 && frame[13] == 0xdd:
		if flow = (oneWayFlow{model.IPv6, frame[20]}); flow.protocol == unix.IPPROTO_ICMPV6 && frame[54] != 128 {
			return
		}
		from, _ = netip.AddrFromSlice(frame[22:38])
		to, _ = netip.AddrFromSlice(frame[38:54])
	}
	if !to.IsValid() || to != o.sink[flow.family] {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last[flow] = append(o.last[flow], from)
	if n := len(o.last[flow]); n > oneWayRun {
		o.last[flow] = o.last[flow][n-oneWayRun:]
	}
}

// expect waits until all flows come from the wanted addresses.
func (o *oneWay) expect(t *testing.T, when string, want func(model.Family) string) {
	t.Helper()
	o.mu.Lock()
	clear(o.last)
	o.mu.Unlock()
	deadline := time.Now().Add(patience)
	for {
		wrong := o.wrong(want)
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("flows without answers, %s:\n%s", when, strings.Join(wrong, "\n"))
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (o *oneWay) wrong(want func(model.Family) string) []string {
	o.mu.Lock()
	last := maps.Clone(o.last)
	o.mu.Unlock()
	var wrong []string
	for f := range o.sink {
		icmp := byte(unix.IPPROTO_ICMP)
		if f == model.IPv6 {
			icmp = unix.IPPROTO_ICMPV6
		}
		for _, protocol := range []byte{unix.IPPROTO_UDP, icmp, 99} {
			flow := oneWayFlow{f, protocol}
			right := 0
			for _, from := range last[flow] {
				if from.String() == want(f) {
					right++
				}
			}
			if right < oneWayRun {
				wrong = append(wrong, fmt.Sprintf("%s comes from %v, want %s", flow, last[flow], want(f)))
			}
		}
	}
	return wrong
}
