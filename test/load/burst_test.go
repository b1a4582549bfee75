package load

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
)

const (
	// burstChanges is the number of later changes of each kind.
	burstChanges = 20
	// burstBatch policies come at a time, as from a watch, with burstPause in between.
	burstBatch, burstPause = 100, 20 * time.Millisecond
)

// burst is what many policies at once cost. CPU of the agent has that of the programs it has started.
type burst struct {
	All, Port, Removed, Added, Pod cost
}

// cost is the time until changes are programmed, and the processor time of agent and switch.
type cost struct {
	Took          []time.Duration
	Agent, Switch time.Duration
}

func (c cost) String() string {
	n := time.Duration(len(c.Took))
	return fmt.Sprintf("%s (worst %s), CPU %s, of ovs-vswitchd %s", quantile(c.Took, 50), quantile(c.Took, 100),
		(c.Agent / n).Round(100*time.Microsecond), (c.Switch / n).Round(100*time.Microsecond))
}

// TestBurst gives an agent many policies at once, and then small changes: the smallest load, or with -burst a load by its name.
func TestBurst(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace")
	}
	b, found := map[string]workload.Burner{
		"": {Namespaces: 8, PodsPerNamespace: 10, Policies: 20, Nodes: 8}, "kube-burner": workload.KubeBurner(),
	}[*burstName]
	if !found {
		t.Fatalf("-burst %s: must be kube-burner", *burstName)
	}
	for _, backend := range strings.Split(*chosen, ",") {
		t.Run(backend, func(t *testing.T) {
			got := task{Backend: backend, Burner: b}.measure(t)
			for _, trouble := range got.Troubles {
				t.Error(trouble)
			}
			fmt.Printf("%s: %d policies at once: %s\n", backend, b.Namespaces*b.Policies, got.Burst.All)
			for _, later := range []struct {
				name string
				cost
			}{{"a port of a policy", got.Burst.Port}, {"a policy removed", got.Burst.Removed}, {"a policy added", got.Burst.Added}, {"a pod", got.Burst.Pod}} {
				fmt.Printf("  %s: %s\n", later.name, later.cost)
			}
			fmt.Printf("  peak RSS %.0f MB; %d rules, %d elements, %d flows; load %s\n", float64(got.Peak)/1e6, got.Rules, got.Elements, got.Flows, measure.LoadAverage())
		})
	}
}

// burst loads the cluster, then all policies at once, and then makes the changes.
func (w *watch) burst(ctx context.Context, t task, f *feed, d *driver.Driver) error {
	send, wait := f.sender(ctx, d)
	if err := wait(send(t.Burner.Cluster())); err != nil {
		return err
	}
	do := func(into *cost, batches ...[]datastore.Event) error {
		agent, inSwitch, err := cpuTime(t.Switch)
		if err != nil {
			return err
		}
		began := time.Now()
		for i, events := range batches {
			time.Sleep(time.Until(began.Add(time.Duration(i) * burstPause)))
			send(events)
		}
		if err := wait(f.revision); err != nil {
			return err
		}
		into.Took = append(into.Took, time.Since(began))
		agentThen, switchThen, err := cpuTime(t.Switch)
		into.Agent += agentThen - agent
		into.Switch += switchThen - inSwitch
		return err
	}
	if err := do(&w.Burst.All, slices.Collect(slices.Chunk(t.Burner.AllPolicies(), burstBatch))...); err != nil {
		return err
	}
	for i := range burstChanges {
		before, changed := t.Burner.LaterChange(i)
		for _, c := range []struct {
			into  *cost
			event datastore.Event
		}{
			{&w.Burst.Port, datastore.NetworkPolicySet{Policy: changed}},
			{&w.Burst.Removed, datastore.NetworkPolicyDeleted{Namespace: before.Namespace, Name: before.Name}},
			{&w.Burst.Added, datastore.NetworkPolicySet{Policy: before}},
			{&w.Burst.Pod, datastore.PodSet{Pod: t.Burner.LaterPod(i)}},
		} {
			if err := do(c.into, []datastore.Event{c.event}); err != nil {
				return err
			}
		}
	}
	used, err := measure.ProcessUsageOf(os.Getpid())
	w.Peak = used.Peak
	return err
}

// cpuTime returns the processor time of this process with the programs that it has started, and of the switch.
func cpuTime(s worker.Switch) (agent, inSwitch time.Duration, err error) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			return 0, 0, err
		}
		agent += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	c, err := s.CPU()
	return agent, c.Switch, err
}
