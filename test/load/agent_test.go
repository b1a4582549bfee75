package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/driver"

	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
)

const (
	// tick is the time between two batches of changes, sample that between two samples.
	tick   = 50 * time.Millisecond
	sample = time.Second
	// lives is how many later pods are added before a pod is removed again.
	lives = 200
	// settle bounds the first apply, and the end of the last one.
	settle = 5 * time.Minute
)

// task is a row for the process that runs it.
type task struct {
	Backend string
	Switch  worker.Switch
	Profile workload.Profile
	// Pods and Policies are changes a second: a pod of another node that joins or leaves a group, and a rule of a
	// policy. One of 20 pods is of this node.
	Pods, Policies int
	For            time.Duration
	// Burner, if it has namespaces, takes the place of everything else (burst_test.go).
	Burner workload.Burner
}

// result is what the process measured.
type result struct {
	// First is the time from the first object to the end of the first apply.
	First time.Duration
	// Applies are the times of the later applies, Delays those from a change to the apply that programs it.
	Applies, Delays []time.Duration
	// At are the times of the samples; the other slices have a value for each.
	At, RSS, Descriptors, Goroutines []float64
	Peak                             uint64
	// CPU is the process's time while the changes came.
	CPU, Took       time.Duration
	Rules, Elements int
	Flows           int
	// Burst are the figures of a burst.
	Burst burst
	// Troubles are what should not be.
	Troubles []string
}

// feed delivers a workload, and then changes.
type feed struct {
	w           workload.Workload
	attachments []model.Attachment
	revision    uint64
	deliver     chan func(datastore.Batch)
	update      chan func(model.Update)
}

func (f *feed) Run(ctx context.Context, deliver func(datastore.Batch)) error {
	f.deliver <- deliver
	<-ctx.Done()
	return nil
}

func (f *feed) Sync(context.Context) (uint64, error) { return f.revision, nil }

func (f *feed) attach(ctx context.Context, update func(model.Update), synced func()) error {
	for _, a := range f.attachments {
		update(model.AttachmentUpdate{Attachment: &a})
	}
	synced()
	f.update <- update
	<-ctx.Done()
	return ctx.Err()
}

// watch notes the applies of a stage.
type watch struct {
	mu sync.Mutex
	result
	applied int
}

func (w *watch) around(s backend.Stage) backend.Stage {
	apply := s.Apply
	s.Apply = func(ctx context.Context) (backend.Applied, error) {
		began := time.Now()
		a, err := apply(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.applied++; w.applied > 1 {
			w.Applies = append(w.Applies, time.Since(began))
		}
		w.Rules, w.Elements, w.Flows = a.Rules, a.Elements, a.Flows
		for _, r := range a.Refused {
			w.Troubles = append(w.Troubles, fmt.Sprintf("quarantined: %s %s: %s", r.Object, r.Name, r.Reason))
		}
		if err != nil {
			w.Troubles = append(w.Troubles, err.Error())
		}
		return a, err
	}
	return s
}

// child runs an agent under a task, and writes its result.
func child(text string) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	felixlike.SetGC()
	found, err := worker.FindBackend(t.Backend)
	if err != nil {
		return err
	}
	b, err := found.New(t.Switch)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	f := &feed{w: workload.New(t.Profile), deliver: make(chan func(datastore.Batch), 1), update: make(chan func(model.Update), 1)}
	if t.Burner.Namespaces > 0 {
		f.attachments = t.Burner.Attachments()
	} else {
		f.attachments = f.w.Attachments()
	}
	w := &watch{}
	d := driver.New(driver.Config{
		Cluster: cluster.Config{Node: workload.Node}, Backend: b, Inputs: driver.Inputs{Source: f, Attachments: f.attach}, Stages: []backend.Stage{w.around(b.Stage())},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Timing: driver.DefaultTiming(),
	})
	ran := make(chan error, 1)
	go func() { ran <- d.Run(ctx) }()
	if t.Burner.Namespaces > 0 {
		err = w.burst(ctx, t, f, d)
	} else {
		err = w.run(ctx, t, f, d)
	}
	stop()
	if err := errors.Join(err, <-ran); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(&w.result)
}

// sender returns what sends a batch and returns its revision, and what waits until one is programmed.
func (f *feed) sender(ctx context.Context, d *driver.Driver) (send func([]datastore.Event) uint64, wait func(uint64) error) {
	deliver := <-f.deliver
	send = func(events []datastore.Event) uint64 {
		f.revision++
		deliver(datastore.Batch{Revision: f.revision, Seen: time.Now(), Events: events, InSync: true})
		return f.revision
	}
	return send, func(revision uint64) error {
		limited, cancel := context.WithTimeout(ctx, settle)
		defer cancel()
		_, err := d.WaitProgrammed(limited, revision)
		return err
	}
}

// run loads the workload and sends the changes.
func (w *watch) run(ctx context.Context, t task, f *feed, d *driver.Driver) error {
	update := <-f.update
	send, wait := f.sender(ctx, d)
	began := time.Now()
	if err := wait(send(f.w.Events())); err != nil {
		return err
	}
	w.First = time.Since(began)
	runtime.GC()
	before, err := measure.ProcessUsageOf(os.Getpid())
	if err != nil {
		return err
	}
	began = time.Now()
	c := &changes{task: t, w: f.w, update: update}
	sampled := began
	for time.Since(began) < t.For {
		events, sent := c.next(time.Since(began)), time.Now()
		revision := send(events)
		if c.batches%20 == 0 {
			if err := wait(revision); err != nil {
				return err
			}
			w.Delays = append(w.Delays, time.Since(sent))
		}
		if time.Since(sampled) > sample {
			sampled = time.Now()
			w.sample(ctx, d, time.Since(began))
		}
		time.Sleep(time.Until(began.Add(time.Duration(c.batches) * tick)))
	}
	if err := wait(f.revision); err != nil {
		return err
	}
	after, err := measure.ProcessUsageOf(os.Getpid())
	w.CPU, w.Peak, w.Took = after.CPU-before.CPU, after.Peak, time.Since(began)
	return err
}

// sample notes the process's use of memory, descriptors and goroutines, and whether the agent is ready.
func (w *watch) sample(ctx context.Context, d *driver.Driver, at time.Duration) {
	if r := d.Ready(ctx); len(r.Missing) > 0 {
		w.mu.Lock()
		w.Troubles = append(w.Troubles, "not ready: "+strings.Join(r.Missing, "; "))
		w.mu.Unlock()
	}
	usage, err := measure.ProcessUsageOf(os.Getpid())
	files, listed := os.ReadDir("/proc/self/fd")
	if err := errors.Join(err, listed); err != nil {
		w.mu.Lock()
		w.Troubles = append(w.Troubles, err.Error())
		w.mu.Unlock()
		return
	}
	w.At = append(w.At, at.Seconds())
	w.RSS = append(w.RSS, float64(usage.RSS)/1e6)
	w.Descriptors = append(w.Descriptors, float64(len(files)))
	w.Goroutines = append(w.Goroutines, float64(runtime.NumGoroutine()))
}

// changes makes the changes of a task, in the order of time.
type changes struct {
	task
	w                                workload.Workload
	update                           func(model.Update)
	batches, pods, policies, removed int
}

// next returns the changes that are due after a time.
func (c *changes) next(at time.Duration) []datastore.Event {
	c.batches++
	var set, deleted []datastore.Event
	for ; c.pods+c.removed < int(at.Seconds()*float64(c.task.Pods)); c.pods++ {
		if c.pods-c.removed >= lives {
			deleted = append(deleted, c.remove(c.removed))
			c.removed++
		}
		set = append(set, c.add(c.pods))
	}
	for ; c.policies < int(at.Seconds()*float64(c.task.Policies)); c.policies++ {
		changed, before := c.w.ChangedPolicy(c.policies / 2)
		if c.policies%2 == 1 {
			changed = before
		}
		if n := len(set); n > 0 && c.policies%2 == 1 {
			// A batch names an object once.
			set = slices.DeleteFunc(set, func(e datastore.Event) bool {
				p, is := e.(datastore.NetworkPolicySet)
				return is && p.Policy.Namespace == changed.Namespace && p.Policy.Name == changed.Name
			})
		}
		set = append(set, datastore.NetworkPolicySet{Policy: changed})
	}
	return append(set, deleted...)
}

// local reports whether the i-th pod is one of this node.
func local(i int) bool { return i%20 == 0 }

func (c *changes) add(i int) datastore.Event {
	if !local(i) {
		return datastore.PodSet{Pod: c.w.Member(i % (10 * lives))}
	}
	pod, at := c.w.Endpoint(i / 20 % lives)
	c.update(model.AttachmentUpdate{Attachment: &at})
	return datastore.PodSet{Pod: pod}
}

func (c *changes) remove(i int) datastore.Event {
	if !local(i) {
		pod := c.w.Member(i % (10 * lives))
		return datastore.PodDeleted{ID: model.PodID{Namespace: pod.Namespace, Name: pod.Name}}
	}
	pod, at := c.w.Endpoint(i / 20 % lives)
	id := model.PodID{Namespace: pod.Namespace, Name: pod.Name}
	c.update(model.AttachmentRemove{Pod: id, Interface: at.Interface})
	return datastore.PodDeleted{ID: id}
}
