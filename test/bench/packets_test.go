package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
	"github.com/google/go-cmp/cmp"
)

func TestPacketsAreComparedWithTheFloor(t *testing.T) {
	p := packetsExample(t, []string{"nftables", "openflow"})
	at := workload.Point{Policies: 100, Peers: 1000}
	f := p.Find("openflow", at, Connections)
	if f == nil || !cmp.Equal(f.PerSecond, measure.Series{3000, 3000, 3000}) || len(f.Latency.P50Rounds) != 3 || f.Latency.Count != 9000 || len(f.First) != 3 {
		t.Fatalf("new connections under openflow: %+v", f)
	}
	// 1.2 CPU-seconds for 3,000 connections of five packets.
	if measure.Digits(f.CPUPerOperation[0]*1e6) != "400" || measure.Digits(f.CPUPerPacket[0]*1e6) != "80" || f.SwitchCPU[0] != 0.7 {
		t.Errorf("CPU %+v", f)
	}
	if floor := p.Find(NoBackend, at, Connections); floor == nil || floor.Latency.P50 >= f.Latency.P50 {
		t.Errorf("floor %+v", floor)
	}
	s := p.Find("nftables", at, Stream)
	if s == nil || s.PerSecond[0] != 8e8 || s.Latency.Count != 0 || s.First != nil || measure.Digits(s.CPUPerOperation[0]) != "12.0" {
		t.Errorf("stream %+v", s)
	}
	if p.Find("nftables", workload.Point{Policies: 1}, Stream) != nil {
		t.Error("found a figure that was not measured")
	}
}

func TestNothingThroughIsNoResult(t *testing.T) {
	results := newPacketsResults([]string{"nftables"}, []workload.Point{{}})
	if err := results.add("nftables", workload.Point{}, Connections, sample{took: time.Second}); err == nil || !strings.Contains(err.Error(), "nothing got through") {
		t.Errorf("error %v", err)
	}
	if err := results.add("openflow", workload.Point{}, Connections, sample{}); err == nil {
		t.Error("a backend that is not measured has a result")
	}
	if got := results.collect(); got != nil {
		t.Errorf("results %+v", got)
	}
}

func TestEnforcementByChange(t *testing.T) {
	e := enforcementExample(t, []string{"nftables"})
	f := e.Find("nftables", Denied)
	if f == nil || f.First.Count != 9 || len(f.First.P50Rounds) != 3 || f.First.P50 >= f.Last.P50 || f.Begun.P50 >= f.Programmed.P50 {
		t.Errorf("%+v", f)
	}
	if e.Find("openflow", Denied) != nil {
		t.Error("found a figure that was not measured")
	}
}
