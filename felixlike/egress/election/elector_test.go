package election

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
)

// server has the Leases of all nodes.
type server struct {
	mu      sync.Mutex
	version int
	all     map[string]leases.Lease
	writes  int
}

var leaseKind = schema.GroupResource{Resource: "leases"}

func (s *server) leases() map[netip.Addr]model.EgressLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[netip.Addr]model.EgressLease{}
	for _, l := range s.all {
		if a := addressOf(&l); a.IsValid() && l.Labels[label] == labelAddress {
			now[a] = contentOf(&l)
		}
	}
	return now
}

// link is the connection of a node to the server. It may be cut, and slow in both directions.
type link struct {
	*server
	random *rand.Rand
	mu     sync.Mutex
	cut    bool
	slow   time.Duration
}

var errCut = errors.New("the connection is cut")

// ask runs a request after a delay, and returns after another one. A request whose client has gone may still arrive.
func (l *link) ask(ctx context.Context, do func() error) error {
	l.mu.Lock()
	cut, there, back := l.cut, time.Duration(0), time.Duration(0)
	if l.slow > 0 {
		there, back = time.Duration(l.random.Int64N(int64(l.slow))), time.Duration(l.random.Int64N(int64(l.slow)))
	}
	l.mu.Unlock()
	if cut {
		<-ctx.Done()
		return errCut
	}
	done := make(chan error, 1)
	go func() {
		time.Sleep(there)
		l.server.mu.Lock()
		err := do()
		l.server.mu.Unlock()
		time.Sleep(back)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) Get(ctx context.Context, name string) (*leases.Lease, error) {
	var found leases.Lease
	err := l.ask(ctx, func() error {
		var there bool
		if found, there = l.all[name]; !there {
			return apierrors.NewNotFound(leaseKind, name)
		}
		return nil
	})
	return &found, err
}

func (l *link) List(ctx context.Context, selector string) ([]*leases.Lease, error) {
	var found []*leases.Lease
	err := l.ask(ctx, func() error {
		for _, o := range l.all {
			key, value, _ := strings.Cut(selector, "=")
			if o.Labels[key] == value {
				found = append(found, &o)
			}
		}
		return nil
	})
	return found, err
}

func (l *link) Put(ctx context.Context, o *leases.Lease) error {
	sent := *o
	var version string
	err := l.ask(ctx, func() error {
		old, there := l.all[sent.Name]
		switch {
		case there && sent.Version == "":
			return apierrors.NewAlreadyExists(leaseKind, sent.Name)
		case !there && sent.Version != "":
			return apierrors.NewNotFound(leaseKind, sent.Name)
		case there && sent.Version != old.Version:
			return apierrors.NewConflict(leaseKind, sent.Name, errors.New("has changed"))
		}
		l.version++
		l.writes++
		version = strconv.Itoa(l.version)
		sent.Version = version
		l.all[sent.Name] = sent
		return nil
	})
	if err == nil {
		o.Version = version
	}
	return err
}

func (l *link) Delete(ctx context.Context, o *leases.Lease) error {
	name, version := o.Name, o.Version
	return l.ask(ctx, func() error {
		if l.all[name].Version != version {
			return apierrors.NewConflict(leaseKind, name, errors.New("has changed"))
		}
		delete(l.all, name)
		return nil
	})
}

// late is how much later than asked the kernel removes an address at most.
const late = 2 * time.Second

// kernel has the addresses of a node. It outlives the agent.
type kernel struct {
	mu    sync.Mutex
	until map[netip.Addr]time.Time
	// foreign are the addresses of other hosts.
	foreign []netip.Addr
}

func (k *kernel) Probe(a netip.Addr) error {
	if slices.Contains(k.foreign, a) {
		return fmt.Errorf("another host has %s", a)
	}
	return nil
}

func (k *kernel) Hold(held []netip.Addr, until time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range held {
		if time.Now().Before(until) {
			k.until[a] = until
		}
	}
	return nil
}

func (k *kernel) Release(a netip.Addr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.until, a)
	return nil
}

func (k *kernel) has(a netip.Addr) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	until, there := k.until[a]
	return there && time.Now().Before(until.Add(late))
}

// node is a node of a test.
type node struct {
	name   string
	link   *link
	kernel *kernel
	wanted map[netip.Addr]model.Candidacy
	// decide returns what the node wants by the Leases that it has seen; nil for wanted.
	decide func(map[netip.Addr]model.EgressLease) []model.EgressAddress
	// lag is how late the watch is.
	lag  time.Duration
	stop context.CancelFunc
}

// start starts an agent on the node, a new process.
func (n *node) start(timing Timing) {
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	e := newElector(Options{Leases: n.link, Kernel: n.kernel, Node: n.name, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Timing: timing})
	have, newer := n.link.leases(), n.link.leases()
	// The policy engine answers late. That of a new agent knows no Leases.
	answered := map[netip.Addr]model.EgressLease{}
	seen, asked := time.Now(), time.Now()
	go func() {
		for ctx.Err() == nil {
			if time.Since(seen) >= n.lag {
				have, newer, seen = newer, n.link.leases(), time.Now()
			}
			wait := e.step(ctx, n.view(have, answered))
			if time.Since(asked) > time.Second {
				answered, asked = have, time.Now()
			}
			time.Sleep(min(max(wait, time.Millisecond), 100*time.Millisecond))
		}
	}()
}

// view returns what the node knows with these Leases, if its policy engine has answered former ones.
func (n *node) view(have, answered map[netip.Addr]model.EgressLease) view {
	n.link.mu.Lock()
	defer n.link.mu.Unlock()
	var all []model.EgressAddress
	if n.decide != nil {
		all = n.decide(answered)
	}
	for a, c := range n.wanted {
		all = append(all, model.EgressAddress{Address: a, Leased: true, Candidacy: &c})
	}
	v := view{leases: have, settled: maps.Equal(have, answered)}
	v.wishes(all)
	return v
}

// world is some nodes, of which all may hold all addresses.
type world struct {
	server    *server
	nodes     []*node
	addresses []netip.Addr
}

func newWorld(random *rand.Rand, nodes, addresses int, timing Timing) *world {
	w := &world{server: &server{all: map[string]leases.Lease{}}}
	for i := range addresses {
		w.addresses = append(w.addresses, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
	}
	for i := range nodes {
		n := &node{
			name: fmt.Sprintf("n%d", i), link: &link{server: w.server, random: rand.New(rand.NewPCG(random.Uint64(), 0))},
			kernel: &kernel{until: map[netip.Addr]time.Time{}}, wanted: map[netip.Addr]model.Candidacy{},
		}
		for j, a := range w.addresses {
			n.wanted[a] = model.Candidacy{Rank: (i + j) % nodes, Of: nodes}
		}
		w.nodes = append(w.nodes, n)
		n.start(timing)
	}
	return w
}

func (w *world) end() {
	for _, n := range w.nodes {
		n.stop()
	}
	time.Sleep(time.Minute) // requests on the way
}

// having returns the nodes that have an address.
func (w *world) having(a netip.Addr) (all []string) {
	for _, n := range w.nodes {
		if n.kernel.has(a) {
			all = append(all, n.name)
		}
	}
	return all
}

// conflict returns an address that two nodes have, or "".
func (w *world) conflict() string {
	for _, a := range w.addresses {
		if all := w.having(a); len(all) > 1 {
			return fmt.Sprintf("%s: %s", a, strings.Join(all, ", "))
		}
	}
	return ""
}

// awaits waits until one node has each address, and returns how long that took.
func (w *world) awaits(t *testing.T, most time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		missing := slices.IndexFunc(w.addresses, func(a netip.Addr) bool { return len(w.having(a)) != 1 })
		if missing < 0 {
			return time.Since(began)
		}
		if time.Since(began) > most {
			t.Fatalf("after %s nodes %v have %s", most, w.having(w.addresses[missing]), w.addresses[missing])
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestOneHolder: under cut and slow connections, agents that die and come back, late watches, and changes of the candidates, no two
// nodes have one address, and after the faults one node has each.
func TestOneHolder(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	random := seeded.Rand(t, t.Name())
	for range 8 {
		synctest.Test(t, func(t *testing.T) {
			// Requests may take longer than a session.
			timing := DefaultTiming()
			timing.Request, timing.Stagger, timing.Orphan = 12*time.Second, 50*time.Millisecond, time.Second
			w := newWorld(random, 3, 2, timing)
			faulty(t, w, random, timing, 10*time.Minute)
			for _, n := range w.nodes {
				n.link.mu.Lock()
				n.link.cut, n.link.slow, n.lag = false, 0, 0
				for j, a := range w.addresses {
					n.wanted[a] = model.Candidacy{Rank: j % 3, Of: 3}
				}
				n.link.mu.Unlock()
				n.stop()
				n.start(DefaultTiming())
			}
			w.awaits(t, 30*time.Second)
			w.end()
		})
		if t.Failed() {
			return
		}
	}
}

// faulty makes faults for some time.
func faulty(t *testing.T, w *world, random *rand.Rand, timing Timing, most time.Duration) {
	for began := time.Now(); time.Since(began) < most; {
		n := w.nodes[random.IntN(len(w.nodes))]
		n.link.mu.Lock()
		switch random.IntN(6) {
		case 0:
			n.link.cut = !n.link.cut
		case 1:
			n.link.slow = time.Duration(random.IntN(12000)) * time.Millisecond
		case 2:
			n.link.cut, n.link.slow = false, 0
		case 3:
			n.lag = time.Duration(random.IntN(5000)) * time.Millisecond
		case 4:
			a := w.addresses[random.IntN(len(w.addresses))]
			if _, is := n.wanted[a]; is {
				delete(n.wanted, a)
			} else {
				n.wanted[a] = model.Candidacy{Rank: random.IntN(3), Of: 3}
			}
		}
		n.link.mu.Unlock()
		if random.IntN(4) == 0 {
			n.stop()
			time.Sleep(time.Duration(random.IntN(15000)) * time.Millisecond)
			n.start(timing)
		}
		for range random.IntN(100) {
			time.Sleep(100 * time.Millisecond)
			if both := w.conflict(); both != "" {
				t.Fatalf("two nodes have one address: %s", both)
			}
		}
	}
}

// TestTakeover: the addresses of a node that dies, or that is cut off, are at the others within a quarter of a minute, and not before it has
// lost them. They do not come back with the node. A new agent of the same node keeps the addresses.
func TestTakeover(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		timing := DefaultTiming()
		w := newWorld(seeded.Rand(t, t.Name()), 3, 255, timing)
		w.awaits(t, 30*time.Second)
		time.Sleep(10 * time.Second)
		before := map[netip.Addr]string{}
		for _, a := range w.addresses {
			before[a] = w.having(a)[0]
		}
		busy := w.server.writes
		time.Sleep(time.Minute)
		if renewals := w.server.writes - busy; renewals > 3*31 {
			t.Errorf("%d writes a minute for %d addresses on 3 nodes", renewals, len(w.addresses))
		}
		// A restart.
		w.nodes[1].stop()
		time.Sleep(3 * time.Second)
		w.nodes[1].start(timing)
		time.Sleep(20 * time.Second)
		for a, n := range before {
			if now := w.having(a); !slices.Equal(now, []string{n}) {
				t.Fatalf("after a restart %v have %s, not %s", now, a, n)
			}
		}
		w.nodes[0].stop()
		w.nodes[2].link.mu.Lock()
		w.nodes[2].link.cut = true
		w.nodes[2].link.mu.Unlock()
		took := w.moves(t, "n1")
		t.Logf("one node took over the addresses of two in %s", took)
		if took > 15*time.Second {
			t.Errorf("it took %s", took)
		}
		w.nodes[0].start(timing)
		w.nodes[2].link.mu.Lock()
		w.nodes[2].link.cut = false
		w.nodes[2].link.mu.Unlock()
		time.Sleep(time.Minute)
		for _, a := range w.addresses {
			if now := w.having(a); !slices.Equal(now, []string{"n1"}) {
				t.Fatalf("%v have %s", now, a)
			}
		}
		w.end()
	})
}

// moves waits until one node has all addresses. No two ever have one.
func (w *world) moves(t *testing.T, to string) time.Duration {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if both := w.conflict(); both != "" {
			t.Fatalf("two nodes have one address: %s", both)
		}
		missing := slices.IndexFunc(w.addresses, func(a netip.Addr) bool { return !slices.Equal(w.having(a), []string{to}) })
		switch {
		case missing < 0:
			return time.Since(began)
		case time.Since(began) > time.Minute:
			t.Fatalf("%v have %s", w.having(w.addresses[missing]), w.addresses[missing])
		}
	}
}
