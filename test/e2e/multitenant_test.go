package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// newMultitenantLab makes a lab with pipelineVariant: openshift.
func newMultitenantLab(t *testing.T) *lab.Lab {
	t.Helper()
	return newLabWith(t, lab.Config{
		Backend: config.OpenFlow, Tunnel: "vxlan", Isolation: config.IsolationNamespaces, ServiceProxy: config.ServiceProxyFull, PipelineVariant: config.VariantOpenShift,
	})
}

const multitenantNodes = "{kind: Node, metadata: {name: node1}}\n---\n{kind: Node, metadata: {name: node2}}\n"

// reached is whom each project reaches: x and milk are joined, common is global, and loner has no number.
var reached = map[string]string{"x": "x milk common", "milk": "x milk common", "other": "other common", "common": "x milk other common", "loner": ""}

func multitenantProjects(milk int) string {
	return multitenantNodes + project("x", 7) + project("milk", milk) + project("other", 9) + project("common", 0) + project("loner", -1)
}

// matrix probes all pods from a pod of each project, and from nodes.
func multitenantMatrix(t *testing.T, l *lab.Lab, reach map[string]string) {
	t.Helper()
	var probes []lab.Probe
	var wanted []bool
	add := func(through bool, from, to string) {
		probes, wanted = append(probes, lab.Probe{From: from, To: to, Protocol: model.TCP, Port: 80, Family: model.IPv4}), append(wanted, through)
	}
	for from, all := range reach {
		for to := range reach {
			for _, node := range []string{"1", "2"} {
				if from != to || node == "2" {
					add(strings.Contains(" "+all+" ", " "+to+" "), from+"/on1", to+"/on"+node)
				}
			}
		}
		for _, node := range []string{"node1", "node2"} {
			add(all != "", "node:"+node, from+"/on1")
		}
	}
	probeAll(t, l, probes, wanted)
}

// probeAll fails the test for each probe that does not go as wanted.
func probeAll(t *testing.T, l *lab.Lab, probes []lab.Probe, wanted []bool) {
	t.Helper()
	for i, r := range l.Probe(t.Context(), probes, probeTimeout) {
		if wanted[i] && !r.Through {
			r = l.Probe(t.Context(), probes[i:i+1], patience)[0]
		}
		if !r.Tried || r.Through != wanted[i] {
			t.Errorf("%s: through %t (%s), want %t", fmt.Sprintf("%s -> %s %s/%d", probes[i].From, probes[i].To, probes[i].Protocol, probes[i].Port), r.Through, r.Reason, wanted[i])
		}
	}
}

// TestMultitenant sends packets between projects with pipelineVariant: openshift, on one node and between two, and from nodes. Joining and
// isolating is in force when it is reported.
func TestMultitenant(t *testing.T) {
	t.Parallel()
	l := newMultitenantLab(t)
	set(t, l, state(t, multitenantProjects(7)))
	multitenantMatrix(t, l, reached)
}
