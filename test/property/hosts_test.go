package property

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
)

// hostClusters is the number of random clusters with policies for nodes, for each backend.
const hostClusters = 40

// afterUs are the rules of the test behind all of ours, which note packets by their addresses and the id in their IP header. Packets of the
// kernel, such as errors about hosts that do not answer, have ids of its own, which can be those of the test.
const afterUs = `
add table inet seen
add set inet seen four { typeof ip saddr . ip daddr . ip id; flags dynamic; size 65535; }
add set inet seen six { typeof ip6 saddr . ip6 daddr . ip6 flowlabel; flags dynamic; size 65535; }
add chain inet seen in { type filter hook input priority 100; }
add chain inet seen out { type filter hook output priority 100; }
add rule inet seen in add @four { ip saddr . ip daddr . ip id }
add rule inet seen in add @six { ip6 saddr . ip6 daddr . ip6 flowlabel }
add rule inet seen out ct direction original add @four { ip saddr . ip daddr . ip id }
add rule inet seen out ct direction original add @six { ip6 saddr . ip6 daddr . ip6 flowlabel }
`

// hostBed is node1 with its addresses, a backend for its pods, and the table with the policies of the node itself.
type hostBed struct {
	*testbed
	*router
	raw map[model.Family]int
}

func newHostBed(t *testing.T, name string) *hostBed {
	t.Helper()
	lockThread(t)
	needTools(t, name)
	h := &hostBed{router: newRouter(t, name, "node1"), raw: map[model.Family]int{}}
	h.testbed = &testbed{sites: map[string]site{"node1": h.router}, verdicts: map[bool]int{}}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	var own []netip.Addr
	for _, a := range []string{"192.168.50.11/32", "10.10.0.1/32", "fd00:50::11/128", "fd00:10::1/128"} {
		address, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		if address.Flags = unix.IFA_F_NODAD; netlink.AddrAdd(lo, address) != nil {
			t.Fatalf("address %s", a)
		}
		own = append(own, netip.MustParsePrefix(a).Addr())
	}
	// Otherwise the kernel chooses flow labels for its own packets, which can be ids.
	if err := sysctl.Write("net/ipv6/auto_flowlabels", "0"); err != nil {
		t.Fatal(err)
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(afterUs)
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for f, domain := range map[model.Family]int{model.IPv4: unix.AF_INET, model.IPv6: unix.AF_INET6} {
		fd, err := unix.Socket(domain, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		h.raw[f] = fd
	}
	hosts := backend.NewHosts(backend.Config{NetNS: h.netns}, policytest.Failsafe())
	hosts.Attempt = func(_, _ *model.HostPolicies) error { return nil }
	hosts.Programmed = func(*model.HostPolicies, string) {}
	hosts.Off = func() bool { return false }
	h.beside = []backend.Stage{hosts.Stage()}
	h.update(model.HostAddressesUpdate{Addresses: own})
	return h
}

// sent is a packet to node1, or from it, and whether it is to come as far as the rules of the test.
type sent struct {
	flow
	in   bool
	want bool
	// verdict is for people.
	verdict oracle.Decision
}

// note is what the rules of the test note of a packet.
type note struct {
	from, to netip.Addr
	id       uint16
}

func (s sent) note() note { return note{s.Source, s.Destination, s.id} }

// aboutNode returns each packet with node1 as destination, and as source.
func aboutNode(packets []oracle.Packet) (all []oracle.Packet) {
	own := map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("192.168.50.11"), model.IPv6: netip.MustParseAddr("fd00:50::11")}
	for _, p := range packets {
		in, out := p, p
		in.Destination, out.Source = own[model.FamilyOf(p.Source)], own[model.FamilyOf(p.Source)]
		all = append(all, p, in, out)
	}
	return all
}

// sendable returns those of the packets that go to or from node1, with their verdicts. Of a packet from a pod of node1 to node1 both ends
// are judged here, of others the end that is node1.
func (h *hostBed) sendable(packets []oracle.Packet) (all []sent) {
	for _, p := range packets {
		from, known := locate(h.cluster, p.Source)
		to, alsoKnown := locate(h.cluster, p.Destination)
		own := func(at place) bool { return at.node == "node1" && !at.pod }
		if !known || !alsoKnown || own(from) == own(to) {
			continue
		}
		v := h.cluster.Evaluate(p)
		s := sent{flow: flow{p, h.newID()}, in: own(to), want: v.Ingress.Allowed, verdict: v.Ingress}
		switch {
		case own(from):
			s.want, s.verdict = v.Egress.Allowed, v.Egress
		case from.node == "node1":
			s.want = v.Allowed
		}
		all = append(all, s)
	}
	return all
}

// seen sends packets, and returns what the rules of the test have noted.
func (h *hostBed) seen(all []sent) (map[note]bool, error) {
	last := sent{flow: flow{oracle.Packet{
		Source: netip.MustParseAddr("198.51.100.200"), Destination: netip.MustParseAddr("192.168.50.11"), Protocol: model.TCP, Port: policytest.Failsafe().In[0].First,
	}, h.newID()}, in: true}
	for _, s := range append(all, last) {
		if err := h.send(s); err != nil {
			return nil, err
		}
	}
	for deadline := time.Now().Add(giveUp); time.Now().Before(deadline); {
		through, err := h.noted()
		if err != nil || through[last.note()] {
			return through, err
		}
		if err := h.send(last); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("a packet to a failsafe port did not come")
}

func (h *hostBed) send(s sent) error {
	if s.in {
		from, _ := locate(h.cluster, s.Source)
		port := h.gateway
		if !from.pod {
			port = h.other
		}
		return port.sendIP(s.opening())
	}
	to := unix.Sockaddr(&unix.SockaddrInet4{})
	if s.Destination.Is4() {
		to.(*unix.SockaddrInet4).Addr = s.Destination.As4()
	} else {
		to = &unix.SockaddrInet6{Addr: s.Destination.As16()}
	}
	if err := unix.Sendto(h.raw[model.FamilyOf(s.Destination)], s.opening(), 0, to); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%s: %w", s.Packet, err)
	}
	return nil
}

// noted returns what the rules of the test have noted.
func (h *hostBed) noted() (map[note]bool, error) {
	through := map[note]bool{}
	out, err := exec.Command("nft", "-j", "list", "table", "inet", "seen").Output()
	if err != nil {
		return nil, err
	}
	var listed struct {
		Nftables []struct {
			Set struct {
				Elem []struct {
					Concat []any `json:"concat"`
				} `json:"elem"`
			} `json:"set"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal(out, &listed); err != nil {
		return nil, err
	}
	for _, one := range listed.Nftables {
		for _, e := range one.Set.Elem {
			if len(e.Concat) != 3 {
				return nil, fmt.Errorf("an element of the test's set: %v", e.Concat)
			}
			from, errFrom := netip.ParseAddr(fmt.Sprint(e.Concat[0]))
			to, errTo := netip.ParseAddr(fmt.Sprint(e.Concat[1]))
			if err := errors.Join(errFrom, errTo); err != nil {
				return nil, err
			}
			if id, is := e.Concat[2].(float64); is {
				through[note{from, to, uint16(id)}] = true
			}
		}
	}
	return through, nil
}

// TestKernelAgreesAboutNodes leads a node from one random cluster with policies for nodes to the next. Packets to and from the node, those of
// its own pods among them, get the oracle's verdict.
func TestKernelAgreesAboutNodes(t *testing.T) {
	t.Parallel()
	for _, name := range backends() {
		if usesBridge(name) {
			continue // the table of the node is the same, and the switch judges its pods (test/e2e: TestTraceHosts)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHostBed(t, name)
			verdicts := map[bool]int{}
			seeded.Checks(t, hostClusters, func(rt *rapid.T) {
				c := randomCluster(rt)
				policytest.HostPolicies(rt, c)
				h.testbed.become(rt, c)
				all := h.sendable(aboutNode(policytest.Packets(rt, c)))
				through, err := h.seen(all)
				if err != nil {
					rt.Fatal(err)
				}
				for _, s := range all {
					verdicts[s.want]++
					if through[s.note()] != s.want {
						rt.Fatalf("%s: came through %v, the oracle says %+v\n%s", s.Packet, through[s.note()], s.verdict, describe(c))
					}
				}
			})
			t.Logf("%d packets through, %d blocked", verdicts[true], verdicts[false])
			if verdicts[true] == 0 || verdicts[false] == 0 {
				t.Errorf("one-sided: %v", verdicts)
			}
		})
	}
}
