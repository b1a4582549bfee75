package managers

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// podAt returns the attachment of a pod whose interface another CNI plugin has made.
func podAt(n int, bridge string) *model.Attachment {
	return &model.Attachment{
		Pod: model.PodID{Namespace: "x", Name: fmt.Sprint("p", n)}, Sandbox: fmt.Sprint("s", n), PodInterface: "eth0",
		Interface: fmt.Sprintf("veth%08x", n*2654435761), Bridge: bridge,
		MAC: net.HardwareAddr{2, 0, 0, 0, byte(n >> 8), byte(n)}, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 9, byte(n >> 8), byte(n)})},
	}
}

func newPodSources() (*held, *PodSourceManager) {
	h := &held{chains: map[string]tables.Chain{}, sets: map[string]map[model.Member]bool{}}
	return h, NewPodSourceManager(rules.NewRenderer("gw", rules.NFTablesNameLength).Between(model.PolicyOnly), h, h)
}

// TestPodSources: each interface has the pods that send by it, and no trace is left of an interface without pods.
func TestPodSources(t *testing.T) {
	h, m := newPodSources()
	give(m, model.AttachmentUpdate{Attachment: podAt(1, "cni0")}, model.AttachmentUpdate{Attachment: podAt(2, "cni0")}, model.AttachmentUpdate{Attachment: podAt(3, "")})
	own := podAt(3, "").Interface
	if got, want := h.senders(), "senders-4-cni0: 10.9.0.1 by 02:00:00:00:00:01, 10.9.0.2 by 02:00:00:00:00:02; senders-4-"+own+": 10.9.0.3 by 02:00:00:00:00:03"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for _, iface := range []string{"cni0", own} {
		if c := h.chains[rules.PodInterfaceChainName(iface)]; len(c.Rules) == 0 || c.Rules[len(c.Rules)-1].Action != (tables.Drop{}) {
			t.Errorf("the chain of %s: %v", iface, c)
		}
	}
	if got := len(h.sets[rules.OwnPodsSet(model.IPv4).Name]); got != 3 {
		t.Errorf("%d own pods", got)
	}

	// A pod with the address of another one that is still there: the newest one has it.
	again := podAt(4, "")
	again.Addresses = podAt(1, "").Addresses
	give(m, model.AttachmentUpdate{Attachment: again})
	if got := h.senders(); !strings.Contains(got, "senders-4-cni0: 10.9.0.2 by 02:00:00:00:00:02; ") || !strings.Contains(got, again.Interface+": 10.9.0.1 by 02:00:00:00:00:04") {
		t.Errorf("after the address moved: %s", got)
	}

	for _, a := range []*model.Attachment{podAt(1, ""), podAt(2, ""), podAt(3, ""), again} {
		give(m, model.AttachmentRemove{Pod: a.Pod, Interface: a.Interface})
	}
	var left []string
	for name := range h.chains {
		left = append(left, name)
	}
	slices.Sort(left)
	if got, want := strings.Join(left, " "), strings.Join([]string{rules.ChainNeighbours, rules.ChainPodSources, rules.ChainUnjudged, rules.ChainUnmarked}, " "); got != want {
		t.Errorf("chains without pods: %s, want %s", got, want)
	}
	if got := h.senders(); got != "" || len(h.sets) != 2 || len(h.sets[rules.OwnPodsSet(model.IPv4).Name]) != 0 {
		t.Errorf("sets without pods: %s %v", got, h.sets)
	}
}

// TestManyInterfaces: the rules that a packet of another interface passes do not grow with the number of pods.
func TestManyInterfaces(t *testing.T) {
	h, m := newPodSources()
	for n := range 1000 {
		give(m, model.AttachmentUpdate{Attachment: podAt(n, "")})
	}
	if got := len(h.chains[rules.ChainPodSources].Rules); got > 60 {
		t.Errorf("%d rules before the first interface is known", got)
	}
}
