package pipeline

import (
	"fmt"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// bundle makes changes of the bridge's flows in one step, and has the datapath forget its cached ones.
func (l *lab) bundle(changes []openflow.FlowMod) {
	l.t.Helper()
	conn, err := openflow.Dial(l.Context(), l.Management())
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Bundle(l.Context(), func(yield func(openflow.FlowMod, error) bool) {
		for _, change := range changes {
			if !yield(change, nil) {
				return
			}
		}
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.purge()
}

// TestRequestSentAgain: the host has begun a connection to a Service while the bridge began none. The client sends its request again, because the
// answer was lost on its way to the bridge or behind it: it goes the same way, and not to another endpoint.
func TestRequestSentAgain(t *testing.T) {
	for name, policy := range map[string][]openflow.Flow{"no policy": nil, "rules on both ends": everybodyMay(2)} {
		l := newServiceLab(t, policy)
		for i, f := range families() {
			t.Run(fmt.Sprintf("%s, %v", name, i), func(t *testing.T) {
				l.t = t
				const syn, ack = 2, 16
				gw := l.node.GatewayMAC
				begin := func(what string, sport uint16) {
					t.Helper()
					p := l.segment(f.pod0, f.service, sport, portAll, syn, 100, 0)
					l.fromPod(0, gw, p)
					l.between(what, l.comes(what, p, l.gw, 64), f.pod0, f.service, sport, portAll)
				}
				all := []uint16{7400, 7401, 7402, 7403}
				l.bundle(CloseServices(l.node))
				for _, sport := range all {
					begin("closed", sport)
				}
				for _, sport := range all[:2] {
					p := l.segment(f.service, f.pod0, portAll, sport, syn|ack, 500, 101)
					l.fromGateway(l.pods[0].MAC, p)
					l.comes("answer", p, l.pod0, 64)
				}
				l.bundle(OpenServices(l.node))
				for _, sport := range slices.Concat(all, all) {
					begin("open", sport)
				}
			})
		}
	}
}
