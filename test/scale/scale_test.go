package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/driver"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// Variables that make a process the agent, and name its API server.
const (
	socketVariable  = "FELIXLIKE_SCALE_SOCKET"
	profileVariable = "FELIXLIKE_SCALE_PROFILE"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(socketVariable); socket != "" {
		run := agent
		if os.Getenv(informerVariable) != "" {
			run = informer
		}
		if err := run(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// usage is the cost of an agent when everything is programmed.
type usage struct {
	CPU      time.Duration
	Wall     time.Duration
	PeakRSS  uint64
	LiveHeap uint64
	Pods     int
}

// agent runs an agent until everything is programmed, and writes its cost.
func agent(socket string) error {
	begin := time.Now()
	felixlike.SetGC()
	if file := os.Getenv(profileVariable); file != "" {
		runtime.MemProfileRate = 16 << 10
		f, err := os.Create(file + ".cpu")
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	source, err := kubernetes.New(kubernetes.Options{Node: "node-0", Log: log, Config: &rest.Config{
		Host: "https://api", TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}})
	if err != nil {
		return err
	}
	nft := backend.NewNFTables("node-0", true)
	programmed := make(chan error, 1)
	stage := nft.Stage()
	apply := stage.Apply
	stage.Apply = func(ctx context.Context) (backend.Applied, error) {
		a, err := apply(ctx)
		select {
		case programmed <- err:
		default:
		}
		return a, err
	}
	d := driver.New(driver.Config{
		Cluster: cluster.Config{Node: "node-0"}, Backend: nft, Stages: []backend.Stage{stage},
		Inputs: driver.Inputs{Source: source, Attachments: func(ctx context.Context, _ func(model.Update), synced func()) error {
			synced()
			<-ctx.Done()
			return nil
		}},
		Log: log, Timing: driver.DefaultTiming(),
	})
	ran := make(chan error, 1)
	go func() { ran <- d.Run(ctx) }()
	select {
	case err = <-programmed:
	case err = <-ran:
		err = errors.Join(errors.New("the agent ended"), err)
	}
	if err != nil {
		return err
	}
	var u usage
	u.Wall = time.Since(begin)
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return err
	}
	u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	if u.PeakRSS, err = peakRSS(); err != nil {
		return err
	}
	runtime.GC()
	runtime.GC()
	if file := os.Getenv(profileVariable); file != "" {
		f, err := os.Create(file + ".heap")
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.WriteHeapProfile(f); err != nil {
			return err
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.LiveHeap = m.HeapAlloc
	objects, err := d.Objects(ctx)
	if err != nil {
		return err
	}
	u.Pods = len(objects.Pods)
	return json.NewEncoder(os.Stdout).Encode(u)
}

// peakRSS returns the peak memory of this process. The figure of getrusage(2) survives
// execve, so it would be the test's.
func peakRSS() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == "VmHWM:" {
			kilobytes, err := strconv.ParseUint(string(f[1]), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("no VmHWM in /proc/self/status")
}

// measure runs an agent of a cluster, which reads each list once.
func measure(t testing.TB, cluster *kubernetestest.Large) usage {
	t.Helper()
	u := start(t, cluster)
	for _, resource := range []string{"nodes", "namespaces", "pods", "networkpolicies", "servicecidrs"} {
		if n := cluster.Reads(resource); n != 1 {
			t.Errorf("%s were read %d times", resource, n)
		}
	}
	return u
}

// start runs an agent of a cluster in a new process and network namespace.
func start(t testing.TB, cluster *kubernetestest.Large, environment ...string) usage {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "api.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(cluster)
	server.Listener.Close()
	server.Listener, server.EnableHTTP2 = listener, true
	server.StartTLS()
	defer server.Close()
	defer server.CloseClientConnections()

	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(append(os.Environ(), socketVariable+"="+socket), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the agent: %v\n%s", err, stderr.Bytes())
	}
	if stderr.Len() > 0 {
		t.Logf("the agent says:\n%s", stderr.Bytes())
	}
	var u usage
	if err := json.Unmarshal(out, &u); err != nil {
		t.Fatal(err)
	}
	if u.Pods != cluster.Pods {
		t.Errorf("the agent knows %d of %d pods", u.Pods, cluster.Pods)
	}
	return u
}

// sized returns a cluster of 110 pods a node, as upstream's largest have them.
func sized(pods int) *kubernetestest.Large {
	return &kubernetestest.Large{Pods: pods, Nodes: max(1, pods/110), Namespaces: max(1, pods/200), Policies: pods / 100}
}

func report(b *testing.B, u usage) {
	b.ReportMetric(u.CPU.Seconds(), "cpu-s")
	b.ReportMetric(float64(u.PeakRSS)/1e6, "peak-rss-MB")
	b.ReportMetric(float64(u.LiveHeap)/1e6, "live-heap-MB")
	b.ReportMetric(u.Wall.Seconds(), "wall-s")
}

// BenchmarkAgent measures an agent; run it with -benchtime 1x -count 5.
func BenchmarkAgent(b *testing.B) {
	for _, pods := range []int{1, 10_000, 100_000} {
		for _, unstreamed := range []bool{false, true} {
			b.Run(fmt.Sprintf("pods=%d/paged=%v", pods, unstreamed), func(b *testing.B) {
				for b.Loop() {
					c := sized(pods)
					c.Unstreamed = unstreamed
					report(b, measure(b, c))
					b.ReportMetric(float64(c.Sent("pods"))/1e6, "pods-MB")
				}
			})
		}
	}
	b.Run("pods=100000/policies=10000/namespaces=5000", func(b *testing.B) {
		for b.Loop() {
			c := sized(100_000)
			c.Policies, c.Namespaces = 10_000, 5_000
			report(b, measure(b, c))
		}
	})
}

// TestSmall bounds the cost of 10,000 pods: memory by 1.2 times the measured value, CPU
// by 4 times, for a busy machine. BenchmarkAgent measures 100,000 pods.
func TestSmall(t *testing.T) {
	for _, unstreamed := range []bool{false, true} {
		t.Run(fmt.Sprintf("paged=%v", unstreamed), func(t *testing.T) {
			c := sized(10_000)
			c.Unstreamed = unstreamed
			u := measure(t, c)
			t.Logf("%.2f CPU-s, %.0f MB at most, %.0f MB live", u.CPU.Seconds(), float64(u.PeakRSS)/1e6, float64(u.LiveHeap)/1e6)
			if u.PeakRSS > 85e6 {
				t.Errorf("%d MB at most", u.PeakRSS/1e6)
			}
			if u.LiveHeap > 17e6 {
				t.Errorf("%d MB live", u.LiveHeap/1e6)
			}
			if u.CPU > 2*time.Second {
				t.Errorf("%s of CPU", u.CPU)
			}
		})
	}
}
