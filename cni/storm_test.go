package cni_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cni/cnitest"
)

// TestStorm adds and deletes a hundred sandboxes at once.
func TestStorm(t *testing.T) {
	const pods = 100
	r := newRuntime(t)
	var all []cnitest.Sandbox
	for i := range pods {
		all = append(all, r.sandbox(fmt.Sprintf("storm-%d", i), fmt.Sprintf("pod-%d", i)))
	}
	for _, command := range []string{"ADD", "DEL"} {
		began := time.Now()
		replies, took, err := r.Storm(r.ctx, command, all)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d times %s at once: %s in all; each p50 %s, p99 %s", pods, command, time.Since(began).Round(time.Millisecond),
			took[pods/2].Round(time.Millisecond), took[pods*99/100].Round(time.Millisecond))
		addresses := map[string]bool{}
		for _, got := range replies {
			for _, p := range got.Prefixes() {
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
