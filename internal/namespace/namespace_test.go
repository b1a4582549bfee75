package namespace_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

func name(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	n := fmt.Sprintf("flx-nstest-%d", os.Getpid())
	t.Cleanup(func() {
		if err := namespace.Delete(n); err != nil {
			t.Error(err)
		}
	})
	return n
}

func interfaces(t *testing.T, n *namespace.Namespace) []string {
	t.Helper()
	var names []string
	err := n.Do(func() error {
		links, err := net.Interfaces()
		for _, l := range links {
			names = append(names, l.Name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestNamespaceIsSeparate(t *testing.T) {
	n, err := namespace.Create(name(t))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, link := range interfaces(t, n) {
		if link == "eth0" {
			t.Error("a new namespace shows the host's eth0")
		}
	}
	again, err := namespace.Open(n.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if len(interfaces(t, again)) != len(interfaces(t, n)) {
		t.Error("the opened namespace is not the created one")
	}
}

func TestCreateRefusesAnExistingName(t *testing.T) {
	n, err := namespace.Create(name(t))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, err := namespace.Create(n.Name()); !errors.Is(err, os.ErrExist) {
		t.Errorf("second Create: %v, want ErrExist", err)
	}
	if !namespace.Exists(n.Name()) {
		t.Error("the refused Create removed the first namespace")
	}
}

func TestDeleteIsRepeatable(t *testing.T) {
	n, err := namespace.Create(name(t))
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	for range 2 {
		if err := namespace.Delete(n.Name()); err != nil {
			t.Fatal(err)
		}
	}
	if namespace.Exists(n.Name()) {
		t.Error("namespace is still there")
	}
	if err := n.Do(func() error { return nil }); !errors.Is(err, namespace.ErrClosed) {
		t.Errorf("Do after Close: %v, want ErrClosed", err)
	}
}

// mainElsewhere reports that the goroutine of main was on another thread than the main one.
var mainElsewhere bool

func TestMain(m *testing.M) {
	var others sync.WaitGroup
	for range 200 {
		others.Go(func() { _ = unix.Nanosleep(&unix.Timespec{Nsec: 1e5}, nil) })
		time.Sleep(100 * time.Microsecond)
		mainElsewhere = mainElsewhere || unix.Gettid() != unix.Getpid()
	}
	others.Wait()
	os.Exit(m.Run())
}

// TestMainThreadIsKept: no other goroutine gets the main thread, so none can leave it in another namespace.
func TestMainThreadIsKept(t *testing.T) {
	if mainElsewhere {
		t.Error("the goroutine of main was on another thread than the main one")
	}
}
