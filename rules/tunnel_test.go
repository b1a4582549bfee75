package rules

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTunnel(t *testing.T) {
	got := ""
	for _, c := range TunnelChains(6081) {
		got += c.Text()
	}
	want := `chain tunnel (hook filter input -450)
  proto udp dport 6081 ip4 src @nodes-4 mark set 0x8000000/0x8000000 return  # tunnel packet of a node
  proto udp dport 6081 ip6 src @nodes-6 mark set 0x8000000/0x8000000 return  # tunnel packet of a node
  proto udp dport 6081 drop  # tunnel packet of a stranger
chain tunnel-passed (hook filter input 500)
  proto udp dport 6081 mark set 0x0/0x8000000  # the packet inside gets no mark
chain tunnel-received (hook filter prerouting -250)
  proto udp dport 6081 ip4 src @nodes-4 notrack  # tunnel packets are not tracked
  proto udp dport 6081 ip6 src @nodes-6 notrack  # tunnel packets are not tracked
chain tunnel-sent (hook filter output -250)
  proto udp dport 6081 ip4 dst @nodes-4 notrack  # tunnel packets are not tracked
  proto udp dport 6081 ip6 dst @nodes-6 notrack  # tunnel packets are not tracked
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
