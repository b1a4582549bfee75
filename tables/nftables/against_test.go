package nftables

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	netns "github.com/felixlike/felixlike/internal/namespace"
)

// cost is the time of a load.
type cost struct{ wall, cpu time.Duration }

func (c *cost) add(o cost) { c.wall, c.cpu = c.wall+o.wall, c.cpu+o.cpu }

// BenchmarkFirstLoadAgainstNft loads the same table by turns through the driver and with `nft -f` of nft's
// own listing, each time in a fresh namespace. The process of nft, and our garbage collection, count. Setters
// give the driver the desired state, as parsing does for nft; they are in both of our figures.
func BenchmarkFirstLoadAgainstNft(b *testing.B) {
	for _, chains := range []int{100, 1000, 2000} {
		b.Run(fmt.Sprintf("rules=%d", 10*chains), func(b *testing.B) {
			source := newNamespace(b)
			table := source.open(b)
			load(table, chains)
			apply(b, table)
			file := filepath.Join(b.TempDir(), "ruleset.nft")
			if err := os.WriteFile(file, []byte(source.run(b, "nft", "list", "ruleset")), 0o600); err != nil {
				b.Fatal(err)
			}
			var ours, setters, theirs cost
			for i := 0; b.Loop(); i++ {
				steps := []func(){
					func() { o, s := loadByDriver(b, chains); ours.add(o); setters.add(s) },
					func() { theirs.add(loadByNft(b, file)) },
				}
				steps[i%2]()
				steps[1-i%2]()
			}
			n := float64(b.N)
			b.ReportMetric(0, "ns/op") // of no meaning: namespaces come and go in it
			b.ReportMetric(ours.wall.Seconds()*1000/n, "ours-ms")
			b.ReportMetric(setters.wall.Seconds()*1000/n, "setters-ms")
			b.ReportMetric(theirs.wall.Seconds()*1000/n, "nft-ms")
			b.ReportMetric(ours.cpu.Seconds()*1000/n, "ours-cpu-ms")
			b.ReportMetric(theirs.cpu.Seconds()*1000/n, "nft-cpu-ms")
			b.ReportMetric(float64(ours.wall)/float64(theirs.wall), "wall-ratio")
			b.ReportMetric(float64(ours.cpu)/float64(theirs.cpu), "cpu-ratio")
		})
	}
}

// loadByDriver returns the cost of a first load, and the part of the setters.
func loadByDriver(b *testing.B, chains int) (all, setters cost) {
	ns := newNamespace(b)
	table := ns.open(b)
	start, cpu := time.Now(), ownCPU(b)
	load(table, chains)
	setters = cost{time.Since(start), ownCPU(b) - cpu}
	if r := apply(b, table); r.RulesAdded != 10*chains+1 {
		b.Fatalf("%+v", r)
	}
	return cost{time.Since(start), ownCPU(b) - cpu}, setters
}

func ownCPU(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// loadByNft returns the cost of the process of nft.
func loadByNft(b *testing.B, file string) cost {
	ns := newNamespace(b)
	nft := exec.Command("nft", "-f", file)
	var wall time.Duration
	err := netns.In(ns.fd, func() error {
		start := time.Now()
		defer func() { wall = time.Since(start) }()
		return nft.Run()
	})
	if err != nil {
		b.Fatal(err)
	}
	return cost{wall: wall, cpu: nft.ProcessState.UserTime() + nft.ProcessState.SystemTime()}
}
