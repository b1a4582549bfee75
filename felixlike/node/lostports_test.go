package node

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
)

func noInterface(string) (bool, error) { return false, nil }

// TestInterfaceExists needs no interface but lo.
func TestInterfaceExists(t *testing.T) {
	for name, want := range map[string]bool{"lo": true, "flx-none": false} {
		if got, err := interfaceExists(name); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// A lost interface is named after a moment, once in the log, and until the pod is made anew.
func TestLostPortsAreNamedAfterAMoment(t *testing.T) {
	var log bytes.Buffer
	l := NewLostPorts(nil, slog.New(slog.NewTextHandler(&log, nil)))
	l.exists = noInterface
	web := model.Attachment{Pod: model.PodID{Namespace: "x", Name: "web"}, Sandbox: "1", Interface: "fx-1"}
	now := time.Now()
	l.look([]model.Attachment{web}, now)
	l.look([]model.Attachment{web}, now.Add(lostGrace-time.Millisecond))
	if all := l.Attachments(); len(all) != 0 {
		t.Errorf("named at once: %v", all)
	}
	l.look([]model.Attachment{web}, now.Add(lostGrace))
	l.look([]model.Attachment{web}, now.Add(2*lostGrace))
	if all := l.Attachments(); len(all) != 1 || all[0].Interface != "fx-1" {
		t.Errorf("not named: %v", all)
	}
	if n := strings.Count(log.String(), "has lost its interface"); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, log.String())
	}
	l.look(nil, now.Add(3*lostGrace))
	if all := l.Attachments(); len(all) != 0 {
		t.Errorf("still named: %v", all)
	}
}

// A runtime may delete the namespace of a sandbox before it calls the CNI plugin. After a restart of
// the node there are no namespaces. Neither is a lost interface.
func TestPodWithoutNamespaceHasNotLostItsInterface(t *testing.T) {
	l := NewLostPorts(nil, slog.New(slog.DiscardHandler))
	l.exists = noInterface
	netNS := filepath.Join(t.TempDir(), "netns")
	web := model.Attachment{Pod: model.PodID{Namespace: "x", Name: "web"}, Sandbox: "1", Interface: "fx-1", NetNS: netNS}
	now := time.Now()
	look := func(at time.Duration) int {
		l.look([]model.Attachment{web}, now.Add(at))
		return len(l.Attachments())
	}
	look(0)
	if look(lostGrace) != 0 {
		t.Error("a pod without a namespace is named")
	}
	if err := os.WriteFile(netNS, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look(2 * lostGrace)
	if look(3*lostGrace) != 1 {
		t.Error("a pod with a namespace is not named")
	}
	if err := os.Remove(netNS); err != nil {
		t.Fatal(err)
	}
	if look(4*lostGrace) != 0 {
		t.Error("a pod is named whose namespace was deleted")
	}
}
