package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

// kit is kubelab, and the parts that are built once for all tests.
type kit struct {
	*kubelab.Kit
	root string
}

// site is a cluster under test.
type site struct {
	*kubelab.Cluster
	kit     kit
	backend string
	proxy   string
	// before is the state of the nodes before the installation.
	before map[string]snapshot
	// logged reports that logState has run after a failure.
	logged bool
}

// ender is a test that can be ended.
type ender interface {
	Skip(...any)
	Fatal(...any)
}

// absent ends a test that cannot make a cluster: with an error if a suite was asked for, since a skipped suite looks as if it had passed.
func absent(t ender, err error) {
	if os.Getenv(suiteVariable) != "" {
		t.Fatal(fmt.Errorf("%s is set: %w", suiteVariable, err))
	}
	t.Skip(err)
}

// findKit returns kubelab, built, or skips the test: nobody waits for the build without having asked for it.
func findKit(t *testing.T) kit {
	t.Helper()
	if testing.Short() {
		t.Skip("a cluster takes minutes")
	}
	if suite() == none {
		t.Skipf("%s=%s: no cluster", suiteVariable, none)
	}
	k, err := kubelab.Find()
	if err != nil {
		absent(t, err)
	}
	building := k.Building() // before Built: it may be done in between
	if !k.Built() && !building && os.Getenv(suiteVariable) == "" {
		t.Skipf("the programs of a cluster are not built here: make test-cluster builds them (a quarter of an hour), and so does %s=%s", suiteVariable, quick)
	}
	root, err := kubelab.Root()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := k.Build(t.Context(), suite() != quick); err != nil {
		t.Fatal(err)
	}
	t.Logf("kubelab is built (%s)", since(start))
	return kit{Kit: k, root: root}
}

// TestPrograms builds the programs of a cluster, if it is asked for.
func TestPrograms(t *testing.T) { findKit(t) }

// imageOf builds felixlike's image, once, and returns the archive.
var imageOf = sync.OnceValues(func() (string, error) {
	root, err := kubelab.Root()
	if err != nil {
		return "", err
	}
	make := exec.Command("make", "-C", root, "image")
	if out, err := make.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make image: %w\n%s", err, out)
	}
	return filepath.Join(root, "bin", "felixlike-image.tar"), nil
})

// newSite brings a cluster up for the time of a test, without any CNI. Its nodes have the image
// that is built of this tree.
func newSite(t *testing.T, backend, proxy string) *site {
	t.Helper()
	k := findKit(t)
	start := time.Now()
	image, err := imageOf()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("image is built (%s)", since(start))
	return newSiteWith(t, k, backend, proxy, image)
}

// newSiteWith is newSite with the images of given archives.
func newSiteWith(t *testing.T, k kit, backend, proxy string, archives ...string) *site {
	t.Helper()
	return newSiteOf(t, k, backend, kubelab.Config{Proxy: proxy, APIServerFlags: auditFlags(t, k)}, archives...)
}

// newSiteOf brings a configured cluster up.
func newSiteOf(t *testing.T, k kit, backend string, config kubelab.Config, archives ...string) *site {
	t.Helper()
	start := time.Now()
	c, err := k.Up(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(); err != nil {
			t.Error(err)
		}
	})
	s := &site{Cluster: c, kit: k, backend: backend, proxy: config.Proxy}
	t.Cleanup(func() {
		if t.Failed() && !s.logged {
			s.logState(t)
		}
	})
	s.wholeChecksums(t)
	archives = append(archives, probeImage(t, s))
	s.onNodes(t, func(node string) error {
		for _, archive := range archives {
			if err := c.Import(t.Context(), node, archive); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("cluster is up, images are there (%s)", since(start))
	return s
}

// onNodes does something on all nodes at once.
func (s *site) onNodes(t *testing.T, do func(node string) error) {
	t.Helper()
	var all sync.WaitGroup
	for _, node := range s.Nodes() {
		all.Go(func() {
			if err := do(node); err != nil {
				t.Errorf("%s: %v", node, err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// kubectl runs kubectl and fails the test if it fails.
func (s *site) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply applies manifests.
func (s *site) apply(t *testing.T, manifests string) {
	t.Helper()
	if err := s.Apply(t.Context(), manifests); err != nil {
		t.Fatal(err)
	}
}

// exec runs a shell script on a node.
func (s *site) exec(t *testing.T, node, script string) string {
	t.Helper()
	out, err := s.Exec(t.Context(), node, script)
	if err != nil {
		t.Fatalf("%s: %v", node, err)
	}
	return out
}

// inNamespace makes a namespace of Kubernetes for the time of a test.
func (s *site) inNamespace(t *testing.T, name string) {
	t.Helper()
	s.kubectl(t, "create", "namespace", name)
	t.Cleanup(func() {
		// The test's context is over.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if _, err := s.Kubectl(ctx, "delete", "namespace", name, "--timeout=110s"); err != nil {
			t.Error(err)
		}
	})
}

// until waits for a condition, which returns the missing part.
func until(t *testing.T, limit time.Duration, missing func() error) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		err := missing()
		if err == nil {
			return
		}
		if time.Now().After(end) || t.Context().Err() != nil {
			t.Fatalf("not within %s: %v", limit, err)
		}
	}
}

func since(start time.Time) string { return time.Since(start).Round(100 * time.Millisecond).String() }

// logState prints the state of a cluster in which a test has failed.
func (s *site) logState(t *testing.T) {
	t.Helper()
	s.logged = true
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, args := range []string{
		"get nodes -o wide", "get pods -A -o wide", "get events -A --sort-by=.lastTimestamp",
		"-n felixlike-system logs -l app.kubernetes.io/name=felixlike --all-containers --prefix --tail=60",
	} {
		out, err := s.Kubectl(ctx, strings.Fields(args)...)
		t.Logf("== kubectl %s (%v)\n%s", args, err, out)
	}
	keep := os.Getenv(keepVariable)
	for _, err := os.Stat(keep); err == nil; _, err = os.Stat(keep) {
		time.Sleep(time.Second)
	}
}
