package ui

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/test/eventually"
)

// meter counts what runs at the same time.
type meter struct{ running, most, all atomic.Int32 }

func (m *meter) begin() (end func()) {
	m.all.Add(1)
	now := m.running.Add(1)
	for most := m.most.Load(); now > most && !m.most.CompareAndSwap(most, now); most = m.most.Load() {
	}
	return func() { m.running.Add(-1) }
}

// slowProofs are agents whose proofs wait.
type slowProofs struct {
	*agents
	meter
	hangs chan struct{}
}

func (a *slowProofs) Ask(ctx context.Context, nodes []string, stdin []byte, command ...string) ([]Answer, error) {
	if command[0] == proveCommand {
		defer a.begin()()
		select {
		case <-a.hangs:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return a.agents.Ask(ctx, nodes, stdin, command...)
}

// TestOneProof: however often pages are loaded, the agents prove a question once, and one question at a time. A reader who leaves ends no proof.
func TestOneProof(t *testing.T) {
	t.Parallel()
	a := &slowProofs{agents: shop(), hangs: make(chan struct{})}
	a.answers["prove"] = `{"equal":true,"compared":"all packets"}`
	var arrived atomic.Int32
	s := serve(t, a, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived.Add(1)
			h.ServeHTTP(w, r)
		})
	})
	s.get(t, "/backends")
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	first := s.request(t, http.MethodGet, "/backends?prove=openflow", nil).WithContext(ctx)
	go func() {
		defer close(left)
		if answer, err := http.DefaultClient.Do(first); err == nil {
			t.Errorf("it does not wait: %s", answer.Status)
			_ = answer.Body.Close()
		}
	}()
	eventually.True(t, "a proof runs", func() bool { return a.running.Load() == 1 })
	leave()
	<-left
	var wait sync.WaitGroup
	const tabs = 4
	for range tabs {
		for _, path := range []string{"/backends?prove=openflow", "/matrix?backend=openflow", "/backends?prove=wanted"} {
			wait.Go(func() {
				if answer, text := s.do(t, s.request(t, http.MethodGet, path, nil)); answer.StatusCode != http.StatusOK || !strings.Contains(text, `<td>n1<td class="good">equal`) {
					t.Errorf("%s: %s\n%s", path, answer.Status, text)
				}
			})
		}
	}
	eventually.True(t, "all have come", func() bool { return arrived.Load() == 2+3*tabs })
	close(a.hangs)
	wait.Wait()
	if all, most := a.all.Load(), a.most.Load(); all != 2 || most != 1 {
		t.Errorf("%d proofs, %d at the same time; want one for each question, one after the other", all, most)
	}
	// Later, it is another question.
	s.prover.last["wanted"] = provedAt{at: time.Now().Add(-fresh)}
	if s.get(t, "/backends?prove=wanted"); a.all.Load() != 3 {
		t.Errorf("%d proofs", a.all.Load())
	}
}

// TestProofOfAnotherPage: a page of another port of this host begins no proof.
func TestProofOfAnotherPage(t *testing.T) {
	t.Parallel()
	a := shop()
	a.answers["prove"] = `{"equal":true,"compared":"all packets"}`
	s := serve(t, a)
	for site, want := range map[string]int{"": http.StatusOK, "none": http.StatusOK, "same-origin": http.StatusOK, "same-site": http.StatusBadRequest, "cross-site": http.StatusForbidden} {
		for _, path := range []string{"/backends?prove=wanted", "/matrix?backend=openflow"} {
			clear(s.prover.last)
			a.asked = nil
			r := s.request(t, http.MethodGet, path, nil)
			if site != "" {
				loadFor(r, site, "document")
			}
			answer, _ := s.do(t, r)
			proves := slices.ContainsFunc(a.asked, func(c []string) bool { return c[0] == proveCommand })
			if answer.StatusCode != want || proves != (want == http.StatusOK) {
				t.Errorf("%s from %q: %s, proves: %v", path, site, answer.Status, proves)
			}
		}
	}
}

// TestProofsOfLab: of the nodes of a lab, which prove in this process, few do at the same time.
func TestProofsOfLab(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, n := range []string{"n1", "n2", "n3", "n4", "n5"} {
		if err := os.MkdirAll(filepath.Dir(labs.ControlSocket(root, "demo", n)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var m meter
	prove := func() []*cobra.Command {
		c := &cobra.Command{Use: proveCommand, RunE: func(*cobra.Command, []string) error {
			defer m.begin()()
			for begin := time.Now(); m.running.Load() <= mostProofs && time.Since(begin) < 100*time.Millisecond; time.Sleep(time.Millisecond) { // for others to begin
			}
			return nil
		}}
		c.Flags().String("socket", "", "")
		return []*cobra.Command{c}
	}
	l := local{&agentflag.Target{Root: root, Lab: "demo", WholeLab: true}, prove, nil, nodeTimeout}
	if answers, err := l.Ask(t.Context(), nil, nil, proveCommand, "live"); err != nil || len(answers) != 5 {
		t.Fatalf("%+v, %v", answers, err)
	}
	if most := m.most.Load(); most > mostProofs || m.all.Load() != 5 {
		t.Errorf("%d proofs at the same time, of %d", most, m.all.Load())
	}
}
