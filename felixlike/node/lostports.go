package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/model"
)

const (
	// lostLook is the interval between two looks for lost interfaces.
	lostLook = 500 * time.Millisecond
	// lostGrace is how long an interface is missing before it is named: a runtime may delete
	// a sandbox's namespace before it calls the CNI plugin.
	lostGrace = 2 * time.Second
)

// LostPorts watches for pods with a recorded port whose interface is gone. Only a new sandbox
// of the pod brings an interface back. The CNI server is no cause of such a port: it makes the
// interface before the port, and deletes it after the port.
type LostPorts struct {
	// recorded returns the recorded attachments, exists reports whether the node has an interface.
	recorded func(context.Context) ([]model.Attachment, error)
	exists   func(name string) (bool, error)
	log      *slog.Logger

	mu  sync.Mutex
	all map[portKey]lostPort
}

type portKey struct {
	pod           model.PodID
	sandbox, name string
}

type lostPort struct {
	model.Attachment
	// since is when it was first seen.
	since time.Time
	// named reports that the grace is over.
	named bool
}

func NewLostPorts(recorded func(context.Context) ([]model.Attachment, error), log *slog.Logger) *LostPorts {
	return &LostPorts{recorded: recorded, exists: interfaceExists, log: log, all: map[portKey]lostPort{}}
}

// Run looks until ctx ends. It logs a lost interface once.
func (l *LostPorts) Run(ctx context.Context) error {
	ticker := time.NewTicker(lostLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		// An error without attachments: the database does not answer, which other parts of the agent
		// report. With attachments: a record cannot be read in full, which the driver logs.
		if all, err := l.recorded(ctx); err == nil || all != nil {
			l.look(all, time.Now())
		}
	}
}

// look looks for the interfaces of attachments at a moment.
func (l *LostPorts) look(recorded []model.Attachment, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := map[portKey]lostPort{}
	for _, a := range recorded {
		if there, err := l.exists(a.Interface); there || err != nil || sandboxGone(a) {
			continue
		}
		key := portKey{a.Pod, a.Sandbox, a.Interface}
		p, known := l.all[key]
		if !known {
			p = lostPort{Attachment: a, since: at}
		}
		if !p.named && at.Sub(p.since) >= lostGrace {
			p.named = true
			l.log.Warn("a pod has lost its interface; it has no network until it is made anew", "pod", a.Pod.String(), "interface", a.Interface)
		}
		now[key] = p
	}
	l.all = now
}

// interfaceExists reports whether there is an interface in the namespace of the calling thread.
func interfaceExists(name string) (bool, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return false, fmt.Errorf("interface %q: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", name, err)
	}
	defer unix.Close(fd)
	err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request)
	if errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("index of interface %s: %w", name, err)
	}
	return true, nil
}

// sandboxGone reports whether the pod's network namespace is gone: the runtime is deleting the sandbox,
// or the node was restarted.
func sandboxGone(a model.Attachment) bool {
	if a.NetNS == "" {
		return false
	}
	_, err := os.Stat(a.NetNS)
	return errors.Is(err, fs.ErrNotExist)
}

// Attachments returns those of lost interfaces, in order.
func (l *LostPorts) Attachments() []model.Attachment {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []model.Attachment
	for p := range maps.Values(l.all) {
		if p.named {
			all = append(all, p.Attachment)
		}
	}
	slices.SortFunc(all, func(a, b model.Attachment) int {
		return cmp.Or(a.Pod.Compare(b.Pod), cmp.Compare(a.Interface, b.Interface))
	})
	return all
}

// noticeInterfaceLost says that a pod has no network because its interface is gone.
const noticeInterfaceLost = "InterfaceLost"

// Module returns the module that names the pods.
func (l *LostPorts) Module(v *driver.View) driver.Module {
	return driver.Module{
		Run:            l.Run,
		ObjectProblems: func() []datastore.Notice { return l.notices(v) },
		Measure:        func(s *metrics.State) { s.InterfacesLost = len(l.notices(v)) },
	}
}

// notices names the pods that have lost their interface. Until everything is programmed, it names none: the records of an earlier agent may be
// out of date. It runs in the loop.
func (l *LostPorts) notices(v *driver.View) (all []datastore.Notice) {
	if !v.Begun() {
		return nil
	}
	m := v.Model()
	for _, lost := range l.Attachments() {
		// A pod that the datastore does not have is deleted. One with another sandbox has been made anew.
		if now := m.Attachments[lost.Pod]; m.Endpoints[lost.Pod] == nil || now != nil && now.Sandbox != lost.Sandbox {
			continue
		}
		all = append(all, datastore.Notice{Kind: noticeInterfaceLost, Problem: model.Problem{
			Object: model.ObjectRef{Kind: "Pod", Namespace: lost.Pod.Namespace, Name: lost.Pod.Name},
			Reason: fmt.Sprintf("pod %s has lost its interface %s: it has no network until it is made anew", lost.Pod, lost.Interface),
		}})
	}
	return all
}
