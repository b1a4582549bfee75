package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/felixlike/felixlike/cmd/felixctl/prove"
)

// TestTimeout: the error says how long was waited, and is one of a deadline for callers.
func TestTimeout(t *testing.T) {
	a := agent{timeout: time.Nanosecond}
	err := a.call(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "not done within 1ns (--timeout)" {
		t.Error(err)
	}
}

// TestProve compares folders of manifests, under two backends that judge in different places.
func TestProve(t *testing.T) {
	const objects = `apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: 10.10.0.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: db, labels: {app: db}}
spec: {nodeName: n1, containers: [{name: db, image: db}]}
status: {phase: Running, podIPs: [{ip: 10.10.0.11}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: web, image: web}]}
status: {phase: Running, podIPs: [{ip: 10.10.0.12}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: db}
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8000, endPort: 9000}]}]}
`
	folder := func(text string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	before, after := folder(objects), folder(strings.Replace(objects, "9000", "9001", 1))
	for backend, end := range map[string]string{"nftables": "accepted", "iptables": "accepted", "openflow": "to the pod shop/db"} {
		flags := []string{"--for-node", "n1", "--backend", backend, "--socket", "/nonexistent/socket"}
		out, err := run(t, "", append([]string{"prove", before, before}, flags...)...)
		if err != nil || !strings.HasPrefix(out, "equal: ") || !strings.Contains(out, "sha256 ") || !strings.Contains(out, "assumed ") {
			t.Errorf("%s: %v\n%s", backend, err, out)
		}
		out, err = run(t, "", append([]string{"prove", before, after}, flags...)...)
		if !errors.Is(err, ErrDifferent) || !strings.Contains(out, "  10.10.0.12 (shop/web) -> 10.10.0.11 (shop/db) tcp 9001\n") ||
			!strings.Contains(out, "\nshop/web -> shop/db tcp 9001: A dropped, B "+end+"\n\n") {
			t.Errorf("%s: %v\n%s", backend, err, out)
		}
		for line := range strings.Lines(out) {
			if len(line) > 81 && !strings.Contains(line, before) && !strings.Contains(line, after) {
				t.Errorf("%s: a line is longer than 80 columns: %s", backend, line)
			}
		}
	}
	out, err := run(t, "", "prove", before, after, "-o", "json", "--for-node", "n1", "--backend", "nftables", "--socket", "/nonexistent/socket")
	var c certificate
	if !errors.Is(err, ErrDifferent) || json.Unmarshal([]byte(out), &c) != nil || c.Equal || len(c.Differences) != 1 || c.Differences[0].Packet.Port != 9001 || c.A.SHA256 == c.B.SHA256 {
		t.Errorf("%v\n%s", err, out)
	}
	listing := write(t, oneTable+"table inet felixlike-tunnel {\n\tchain x {\n\t\ttype filter hook forward priority 0; policy accept;\n\t\tip ttl 3 drop\n\t}\n}\n")
	var refused *prove.NotProved
	if out, err := run(t, "", "prove", listing, listing); !errors.As(err, &refused) || !strings.Contains(err.Error(), "chain x rule 1") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run(t, "", "prove", write(t, "table inet theirs {\n}\n"), listing); err == nil || errors.Is(err, ErrDifferent) || !strings.Contains(err.Error(), "it has no policy of felixlike") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestProveTellsApart: of states that some packet tells apart, none is called equal.
func TestProveTellsApart(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("testdata", "prove.txtar"))
	if err != nil || len(archive.Files)%3 != 0 {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(archive.Files, 3) {
		name, want, _ := strings.Cut(pair[0].Name, "/")
		want, why, _ := strings.Cut(want, ": ")
		t.Run(name, func(t *testing.T) {
			var files []string
			for _, f := range pair[1:] {
				path := filepath.Join(t.TempDir(), filepath.Base(f.Name))
				if err := os.WriteFile(path, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
				files = append(files, path)
			}
			out, err := run(t, "", append([]string{"prove", "--socket", "/nonexistent/socket"}, files...)...)
			var refused *prove.NotProved
			got := "equal"
			switch {
			case errors.Is(err, ErrDifferent):
				got = "different"
			case errors.Is(err, ErrPartly):
				got = "in part"
			case errors.As(err, &refused):
				got = "not proved"
			}
			if got != want {
				t.Errorf("%s: %s, want %s: %v\n%s", why, got, want, err, out)
			}
		})
	}
}
