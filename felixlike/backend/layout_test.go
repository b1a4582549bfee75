package backend

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// BenchmarkLayouts measures the reference workload, 1,000 pods and 1,000 policies of ten rules, in each layout of
// backend nftables: the CPU time of the managers and of the apply for one changed rule, and for one member. The
// engine's time does not count.
func BenchmarkLayouts(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("not root")
	}
	profile, err := workload.FindProfile(workload.W1)
	if err != nil {
		b.Fatal(err)
	}
	w := workload.New(profile)
	for _, layout := range []string{config.LayoutRules, config.LayoutMaps} {
		b.Run(layout, func(b *testing.B) {
			ns, err := scratchNamespace()
			if err != nil {
				b.Fatal(err)
			}
			defer ns.Close()
			node := newNFTables(Config{Name: config.NFTables, Layout: layout, NetNS: int(ns.Fd()), Node: workload.Node})
			defer func() { _ = node.Close() }()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			engine := policy.New(workload.Node)
			program := func() time.Duration {
				updates := engine.Flush()
				began := threadCPU(b)
				for _, m := range node.Stage().Managers {
					for _, u := range updates {
						m.OnUpdate(u)
					}
				}
				for _, m := range node.Stage().Managers {
					m.CompleteDeferredWork()
				}
				if _, err := node.Stage().Apply(b.Context()); err != nil {
					b.Fatal(err)
				}
				return threadCPU(b) - began
			}
			for _, a := range w.Attachments() {
				engine.SetLocalAddresses(a.Pod, a.Addresses)
				for _, m := range node.Stage().Managers {
					m.OnUpdate(model.AttachmentUpdate{Attachment: &a})
				}
			}
			for _, e := range w.Events() {
				switch e := e.(type) {
				case datastore.NodeSet:
					engine.SetNode(e.Node)
				case datastore.NamespaceSet:
					engine.SetNamespace(e.Namespace)
				case datastore.PodSet:
					engine.SetPod(e.Pod)
				case datastore.NetworkPolicySet:
					engine.SetNetworkPolicy(e.Policy)
				}
			}
			first := program()
			program()
			var rule, member time.Duration
			n := 0
			for b.Loop() {
				changed, _ := w.ChangedPolicy(n)
				engine.SetNetworkPolicy(changed)
				rule += program()
				engine.SetPod(w.Member(n))
				member += program()
				n++
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(first.Microseconds())/1000, "first-load-ms")
			b.ReportMetric(float64(rule.Microseconds())/float64(n)/1000, "ms/rule")
			b.ReportMetric(float64(member.Microseconds())/float64(n)/1000, "ms/member")
		})
	}
}

func threadCPU(b *testing.B) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		b.Fatal(err)
	}
	return time.Duration(now.Nano())
}
