package kubernetestest

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Server is an API server for the kinds that an agent reads, and for Events. It
// serves lists, in pages and as streams, watches and simple writes, in JSON and
// protobuf.
type Server struct {
	address string

	mu      sync.Mutex
	http    *http.Server
	objects storage
	// changed is closed, and made anew, at every change and to break watches.
	changed chan struct{}
	// breaks counts the times that all watches were broken.
	breaks int
	// refused has the HTTP status that requests for a resource get.
	refused map[string]int
	// hidden are the resources that discovery does not name.
	hidden map[string]bool
	// refusals counts the requests for a resource that were refused.
	refusals map[string]int
	// unstreamed reports that lists do not come as streams.
	unstreamed bool
	requests   []Request
	// asked counts the questions to discovery by their path.
	asked map[string]int
	// held is not nil while lists must wait.
	held chan struct{}
	// cut, if not zero, is the number of objects before a list breaks off.
	cut int
}

// Request is one request of a client.
type Request struct{ Client, Verb, Group, Resource string }

// NewServer returns a server that runs until the test ends.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Listen returns a server that listens at an address, in the network namespace of
// the thread, until it is stopped.
func Listen(address string) (*Server, error) {
	s := &Server{address: address, objects: newStorage(), changed: make(chan struct{}), refused: map[string]int{}, hidden: map[string]bool{}, refusals: map[string]int{}, asked: map[string]int{}}
	return s, s.Start()
}

// Config returns how a client of that name reaches the server.
func (s *Server) Config(client string) *rest.Config {
	return &rest.Config{
		Host: "http://" + s.address, BearerToken: client, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}, // the form of what is written
	}
}

// Start has the server listen again, where it did before.
func (s *Server) Start() error {
	var l net.Listener
	var err error
	for range 100 { // the port may be in use for a moment
		if l, err = net.Listen("tcp", s.address); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address = l.Addr().String()
	server := &http.Server{Handler: s}
	s.http = server
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // the test cannot go on
		}
	}()
	return nil
}

// Stop ends all connections. Stored objects stay.
func (s *Server) Stop() {
	s.mu.Lock()
	server := s.http
	s.breaks++
	s.wakeLocked()
	s.mu.Unlock()
	server.Close()
}

// Break ends all watches.
func (s *Server) Break() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaks++
	s.wakeLocked()
}

// Compact forgets all versions but the newest: a watch that was behind must list
// again.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects.compact()
}

// Refuse answers requests for resources, or for all, with an HTTP status; 0 serves
// them again. A status is a resource of its own, "pods/status". Those of Antrea have their group,
// "tiers.crd.antrea.io". Admin is never refused.
func (s *Server) Refuse(status int, plurals ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(plurals) == 0 {
		for _, r := range resources() {
			plurals = append(plurals, r.key, r.key+"/status")
		}
	}
	for _, plural := range plurals {
		s.refused[plural] = status
	}
}

// Hide sets whether discovery leaves out a resource. An API server without a kind also
// forbids it to those who have no right to it: see Refuse.
func (s *Server) Hide(plural string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden[plural] = on
}

// StreamLists chooses whether lists come as streams, as they do since Kubernetes
// 1.34. They do at first.
func (s *Server) StreamLists(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unstreamed = !on
}

// HoldLists has lists wait until release is called.
func (s *Server) HoldLists() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = nil
		close(held)
	}
}

// CutLists makes every list break off behind that many objects; 0 leaves them whole.
func (s *Server) CutLists(after int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = after
}

// Refusals returns the number of refused requests for a resource.
func (s *Server) Refusals(plural string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusals[plural]
}

// Asked returns the number of questions to discovery with that path.
func (s *Server) Asked(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// Requests returns the requests so far, each kind once.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request{}, s.requests...)
}

func (s *Server) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}
