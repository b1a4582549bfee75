package property

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// maxPods bounds the pods of random clusters.
const maxPods = 12

// bridge is a site that decides in Open vSwitch. Frames enter and leave as they
// would on a node: by the ports of pods, by the gateway port for the host,
// and in Geneve by the uplink for peers.
type bridge struct {
	*dataplane
	ports map[string]*port
	// marker numbers sentinels.
	marker uint64
}

// The names of the ports that belong to no pod.
const (
	hostSide = "host"
	wireSide = "wire"
)

// etherMarker is the type of sentinels (IEEE 802: for local experiments), which
// flows of the test send to where they are seen.
const etherMarker = 0x88b5

// underlay are the underlay addresses of nodes, by name.
type underlay map[string]netip.Addr

// randomNodes are those of the random clusters.
func randomNodes() underlay {
	return underlay{"node1": netip.MustParseAddr("192.168.50.11"), "node2": netip.MustParseAddr("192.168.50.12")}
}

// randomPods are the names of the pods of random clusters.
func randomPods() []string {
	var names []string
	for i := range maxPods {
		names = append(names, fmt.Sprintf("pod%d", i))
	}
	return names
}

// peerMAC is the MAC address of every underlay host.
func peerMAC() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, 0x99} }

// newBridge makes a bridge for the node of that name, with the backend, and ports
// for pods of these names. The calling goroutine must be locked to its thread, which
// the bridge moves between namespaces.
func newBridge(t *testing.T, backend, node string, nodes underlay, pods []string) *bridge {
	t.Helper()
	b := &bridge{ports: map[string]*port{}}
	k := newKernel(t, backend, node, nodes)
	o := k.bridge
	b.ports[hostSide], b.ports[wireSide] = openPort(t, gatewayPort), openPort(t, "uplink0x")
	for _, name := range pods {
		o.pool[name] = o.attach(name)
		b.ports[name] = openPort(t, name+"x")
	}
	for peer, address := range nodes {
		if peer != node {
			o.neighbour(address, peerMAC())
		}
	}
	for _, flow := range []string{
		fmt.Sprintf("table=0,priority=65534,dl_type=%#x actions=IN_PORT", etherMarker),
		fmt.Sprintf("table=0,priority=65535,in_port=%d,dl_type=%#x actions=output:%d", ovsdb.TunnelOFPort, etherMarker, ovsdb.GatewayOFPort),
	} {
		_, err := o.ofctl("add-flow", flow)
		o.must("sentinels", err)
	}
	var err error
	b.dataplane, err = newDataplane(backend, node, k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.round(nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bridge) plane() *dataplane { return b.dataplane }

// switchesOwn: packets between a pod and its node cross the bridge.
func (b *bridge) switchesOwn() bool { return true }

// wipe deletes the flows of policy, as an administrator with ovs-ofctl would, and the
// switch's conntrack entries. Removing the backend itself would leave the switch
// open, as on a node without policy.
func (b *bridge) wipe() error {
	_, err := b.bridge.ofctl("del-flows", fmt.Sprintf("cookie=%#x/%#x", uint64(pipeline.PolicyOwner)<<48, uint64(0xffff)<<48))
	b.changed = true
	return errors.Join(err, b.bridge.control.FlushZone(context.Background(), pipeline.Zone))
}

// openWithoutPolicy: nothing leaves that no policy has judged.
func (b *bridge) openWithoutPolicy() bool { return false }

// round sends the probes, then a sentinel by each port, and after their arrival
// another one. The datapath takes up to 32 packets of a port at a time and
// sends them on in no certain order. The second sentinel is never in the batch of
// the first.
func (b *bridge) round(probes []probe, _ func() uint16, through map[uint16]bool) error {
	if b.changed {
		if err := b.bridge.forget(); err != nil {
			return err
		}
		b.changed = false
	}
	b.met = true
	for _, p := range b.ports {
		p.discard()
	}
	wanted := map[uint16]probe{}
	used := map[string]bool{hostSide: true}
	for _, p := range probes {
		name, frame, err := b.frame(p)
		if err != nil {
			return err
		}
		if err := b.ports[name].send(frame); err != nil {
			return err
		}
		wanted[p.id], used[name] = p, true
	}
	for range 2 {
		if err := b.sentinels(used, wanted, through); err != nil {
			return err
		}
	}
	return b.collect(wanted, through, func(uint64) {})
}

// sentinels sends one by each of the ports, and waits for all of them.
func (b *bridge) sentinels(used map[string]bool, wanted map[uint16]probe, through map[uint16]bool) error {
	var listening []*port
	for _, name := range slices.Sorted(maps.Keys(b.ports)) {
		listening = append(listening, b.ports[name])
	}
	for deadline := time.Now().Add(giveUp); time.Now().Before(deadline); {
		missing := map[uint64]bool{}
		for _, name := range slices.Sorted(maps.Keys(used)) {
			b.marker++
			missing[b.marker] = true
			frame := binary.BigEndian.AppendUint16(slices.Concat(peerMAC(), peerMAC()), etherMarker)
			frame = append(binary.BigEndian.AppendUint64(frame, b.marker), make([]byte, 46)...)
			if name == wireSide {
				frame = b.fromPeer("", frame)
			}
			if err := b.ports[name].send(frame); err != nil {
				return err
			}
		}
		for late := time.Now().Add(again); time.Now().Before(late); {
			if err := await(time.Until(late), listening...); err != nil {
				return err
			}
			if err := b.collect(wanted, through, func(id uint64) { delete(missing, id) }); err != nil {
				return err
			}
			if len(missing) == 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("%s: sentinels did not come out within %s", b.node, giveUp)
}

// collect records arrived packets, and hands the numbers of sentinels to seen.
func (b *bridge) collect(wanted map[uint16]probe, through map[uint16]bool, seen func(uint64)) error {
	for name, p := range b.ports {
		for {
			frame, err := p.receive()
			if err != nil {
				return err
			}
			if frame == nil {
				break
			}
			if binary.BigEndian.Uint16(frame[12:]) == etherMarker && len(frame) >= 22 {
				seen(binary.BigEndian.Uint64(frame[etherLen:]))
				continue
			}
			where := seenAt{port: name, frame: frame}
			id := where.unwrap()
			want, ours := wanted[id]
			if !ours {
				continue
			}
			if err := b.rightWay(want, where); err != nil {
				return err
			}
			through[id] = true
		}
	}
	return nil
}

// frame makes the frame that a probe is on its way in, and names its port.
func (b *bridge) frame(p probe) (name string, frame []byte, err error) {
	gateway := b.bridge.config.GatewayMAC
	dst := gateway
	if p.out.side == localPod {
		pod, err := b.podAt(p.out.address)
		if err != nil {
			return "", nil, err
		}
		dst = cni.MAC(pod)
	}
	switch p.in.side {
	case localPod:
		pod, err := b.podAt(p.in.address)
		return pod.Name, ethernet(dst, cni.MAC(pod), p.payload), err
	case peerNode:
		return wireSide, b.fromPeer(p.in.node, ethernet(pipeline.VirtualMAC(), peerMAC(), p.payload)), nil
	}
	return hostSide, ethernet(dst, gateway, p.payload), nil
}

// podAt finds the attached pod with an address.
func (b *bridge) podAt(a netip.Addr) (model.PodID, error) {
	for id, addresses := range b.attached {
		if slices.Contains(addresses, a) {
			return id, nil
		}
	}
	return model.PodID{}, fmt.Errorf("%s: no attached pod has the address %s", b.node, a)
}
