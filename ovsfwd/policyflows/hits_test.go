package policyflows

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestHits sends packets through the switch and compares what the rules have
// counted.
func TestHits(t *testing.T) {
	b := ovstest.NewBridge(t)
	s, p := onSwitch(t, b)
	web, base := networkPolicy("web"), model.PolicyID{Tier: model.TierBaseline, Name: "default"}
	allow := model.Rule{Name: "allow", Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{tcp(80, 80)}}
	s.SetPolicy(&model.Policy{ID: web, Ingress: []model.Rule{allow}, Egress: []model.Rule{allow}})
	s.SetPolicy(&model.Policy{ID: base, Egress: []model.Rule{{Name: "deny", Action: model.Deny, AnyPeer: true, AnyPort: true}}})
	pods := []Pod{testPod(3, model.Applied{}, apply(web)), testPod(4, apply(web), model.Applied{}), testPod(5, model.Applied{}, apply(base))}
	cidr := netip.MustParsePrefix("10.10.1.0/24")
	node := pipeline.Node{
		Mode: pipeline.Full, Userspace: b.Userspace(), GatewayPort: 2, TunnelPort: 1, GatewayMAC: b.Config.GatewayMAC,
		PodCIDRs: []netip.Prefix{cidr}, Gateways: []netip.Addr{cidr.Addr().Next()},
	}
	flows := pipeline.Base(node)
	for i, pod := range pods {
		// A packet comes back from connection tracking by a port that is there.
		b.Run("ovs-vsctl", "--db=unix:"+b.Daemons.DBSocket(), "add-port", "br-int", pod.Interface, "--",
			"set", "Interface", pod.Interface, "type=internal", fmt.Sprintf("ofport_request=%d", pod.Port))
		s.SetPod(pod)
		flows = append(flows, pipeline.Endpoint(node, &model.Attachment{
			Pod: pod.ID, Interface: pod.Interface, OFPort: pod.Port, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}, Addresses: pod.Addresses,
		})...)
	}
	conn := install(t, b, flows)
	s.Complete()
	if _, err := p.Apply(b.Context()); err != nil {
		t.Fatal(err)
	}
	var counts uint64
	// send waits until the rules have counted the packet. The kernel's datapath goes on with it after PacketOut has returned.
	send := func(from, to int, port, toPort uint16, flags uint8, rules uint64) {
		t.Helper()
		frame := conntrack.Frame(conntrack.Tuple{
			Protocol: 6, Src: pods[from].Addresses[0], Dst: pods[to].Addresses[0], SrcPort: port, DstPort: toPort,
		}, flags)
		// As if the pod had sent it and the guard of table 10 let it through.
		err := conn.PacketOut(b.Context(), []openflow.PacketOut{{
			InPort: pods[from].Port, Data: frame,
			Actions: []openflow.Action{openflow.SetBits(openflow.Reg0, 2, 0xffff), openflow.Resubmit(pipeline.TableConntrack)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		counts += rules
		ovstest.Poll(t, func() error {
			hits, err := s.Hits(b.Context(), conn)
			if err != nil {
				t.Fatal(err)
			}
			var got uint64
			for _, h := range hits {
				got += h.Packets
			}
			if got != counts {
				return fmt.Errorf("the rules have counted %d packets, not %d", got, counts)
			}
			return nil
		})
	}
	send(0, 1, 1000, 80, conntrack.FlagSYN, 2)
	send(1, 0, 80, 1000, conntrack.FlagSYN|conntrack.FlagACK, 2)
	send(0, 1, 1000, 80, conntrack.FlagACK, 2)
	send(0, 1, 1001, 80, conntrack.FlagSYN, 2)
	send(0, 1, 1002, 81, conntrack.FlagSYN, 0) // no rule allows it
	send(2, 1, 1000, 80, conntrack.FlagSYN, 1)
	send(2, 1, 1000, 80, conntrack.FlagSYN, 1)
	type counted struct{ Sessions, Packets uint64 }
	want := map[string]counted{
		"egress rule 0 of networkpolicy/default/web": {2, 4}, "ingress rule 0 of networkpolicy/default/web": {2, 4}, "egress rule 0 of clusternetworkpolicy/default": {0, 2},
	}
	ovstest.Poll(t, func() error {
		hits, err := s.Hits(b.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]counted{}
		for _, h := range hits {
			got[h.RuleID.String()] = counted{h.Sessions, h.Packets}
			if h.Packets > 0 && h.Bytes < h.Packets*40 {
				t.Errorf("%s: %d bytes in %d packets", h.RuleID, h.Bytes, h.Packets)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			return errDiff(d)
		}
		return nil
	})
}

// errDiff is a difference to what is wanted.
type errDiff string

func (e errDiff) Error() string { return "-want +got\n" + string(e) }
