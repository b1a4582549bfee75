package cni_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestStorm adds and deletes a hundred sandboxes at once.
func TestStorm(t *testing.T) {
	const pods = 100
	r := newRuntime(t)
	var all []sandbox
	for i := range pods {
		all = append(all, r.sandbox(fmt.Sprintf("storm-%d", i), fmt.Sprintf("pod-%d", i)))
	}
	for _, command := range []string{"ADD", "DEL"} {
		took := make([]time.Duration, pods)
		replies := make([]reply, pods)
		var wait sync.WaitGroup
		began := time.Now()
		for i, s := range all {
			wait.Go(func() {
				start := time.Now()
				replies[i] = r.call(command, "1.1.0", s, nil)
				took[i] = time.Since(start)
			})
		}
		wait.Wait()
		slices.Sort(took)
		t.Logf("%d times %s at once: %s in all; each p50 %s, p99 %s", pods, command, time.Since(began).Round(time.Millisecond),
			took[pods/2].Round(time.Millisecond), took[pods*99/100].Round(time.Millisecond))
		addresses := map[string]bool{}
		for i, got := range replies {
			if got.failed {
				t.Fatalf("%s of %s: %s", command, all[i].id, got.raw)
			}
			for _, p := range prefixes(got) {
				addresses[p] = true
			}
		}
		if command == "ADD" && len(addresses) != 2*pods {
			t.Errorf("%d different addresses, want %d", len(addresses), 2*pods)
		}
	}
	if got := r.left(); got != nothing {
		t.Error(got)
	}
}
