package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
)

func TestPacketsAreComparedWithTheFloor(t *testing.T) {
	p := packetsExample(t, []string{"nftables", "openflow"})
	at := workload.Point{Policies: 100, Peers: 1000}
	f := p.Find("openflow", at, Connections)
	if f == nil || !cmp.Equal(f.PerSecond, Series{3000, 3000, 3000}) || len(f.Latency.P50Rounds) != 3 || f.Latency.Count != 9000 || len(f.First) != 3 {
		t.Fatalf("new connections under openflow: %+v", f)
	}
	// 1.2 CPU-seconds for 3,000 connections of five packets.
	if digits(f.CPUPerOperation[0]*1e6) != "400" || digits(f.CPUPerPacket[0]*1e6) != "80" || f.SwitchCPU[0] != 0.7 {
		t.Errorf("CPU %+v", f)
	}
	if floor := p.Find(NoBackend, at, Connections); floor == nil || floor.Latency.P50 >= f.Latency.P50 {
		t.Errorf("floor %+v", floor)
	}
	s := p.Find("nftables", at, Stream)
	if s == nil || s.PerSecond[0] != 8e8 || s.Latency.Count != 0 || s.First != nil || digits(s.CPUPerOperation[0]) != "12.0" {
		t.Errorf("stream %+v", s)
	}
	if p.Find("nftables", workload.Point{Policies: 1}, Stream) != nil {
		t.Error("found what was not measured")
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
		t.Error("found what was not measured")
	}
}

func TestIdleTimeIsReadOfEveryProcessor(t *testing.T) {
	text := "cpu  100 0 100 5000 10 0 0 20 0 0\ncpu0 50 0 50 2500 5 0 0 10 0 0\ncpu1 50 0 50 2500 5 0 0 10 0 0\nintr 1 2 3\n"
	u, err := parseStat(text)
	if err != nil || u.cpus != 2 || u.idle != 50300*time.Millisecond {
		t.Fatalf("%+v, error %v", u, err)
	}
	then := u
	u.at, u.idle = then.at.Add(time.Second), then.idle+500*time.Millisecond
	var s sample
	if u.since(then, &s); s.cpu != 1500*time.Millisecond {
		t.Errorf("CPU %s of two processors that were idle for half a second of one", s.cpu)
	}
	if _, err := parseStat("intr 1 2 3\n"); err == nil {
		t.Error("no processor, no error")
	}
}

func TestDecodeReadsVersion1(t *testing.T) {
	r, err := Decode([]byte(`{"version": 1, "rounds": 3, "backends": ["nftables"], "profile": {"name": "w1"}, "results": [{"backend": "nftables", "case": "restart",
		"wallSeconds": {"median": 2, "min": 1, "max": 3, "rounds": [1, 3, 2]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Find("nftables", worker.Restart); r.Version != ReportVersion || f == nil || !cmp.Equal(f.Wall, Series{1, 3, 2}) {
		t.Errorf("version 1 is read as %+v", r)
	}
	if _, err := Decode([]byte(`{"version": 1, "datapath": "netdev", "results": []}`)); err == nil || !strings.Contains(err.Error(), "measure again") {
		t.Errorf("error %v", err)
	}
}
