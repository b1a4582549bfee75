package iptables

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/tablestest"
)

const (
	dockerRules  = "*filter\n:DOCKER-USER - [0:0]\n-A DOCKER-USER -j RETURN\nCOMMIT\n"
	kubeletRules = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
	oneRule      = "*filter\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n"
)

func TestDetect(t *testing.T) {
	type rules struct {
		variant Variant
		family  model.Family
		text    string
	}
	for _, c := range []struct {
		name  string
		rules []rules
		ours  Variant
		want  Variant // Auto: refused
		says  string
	}{
		{name: "nothing", want: preferred(t.Context()), says: "nobody has rules"},
		{name: "docker in legacy", rules: []rules{{Legacy, model.IPv4, dockerRules}}, want: Legacy, says: "other programs"},
		{name: "docker in nft", rules: []rules{{NFT, model.IPv4, dockerRules}}, want: NFT, says: "other programs"},
		{name: "one rule of IPv6 in legacy", rules: []rules{{Legacy, model.IPv6, oneRule}}, want: Legacy, says: "other programs"},
		{name: "kubelet in legacy, docker in nft", rules: []rules{{Legacy, model.IPv4, kubeletRules}, {NFT, model.IPv4, dockerRules}}, want: Legacy, says: "the kubelet"},
		{name: "kubelet in nft, docker in both", rules: []rules{{NFT, model.IPv6, kubeletRules}, {NFT, model.IPv4, dockerRules}, {Legacy, model.IPv4, dockerRules}}, want: NFT, says: "the kubelet"},
		{name: "kubelet in both", rules: []rules{{NFT, model.IPv4, kubeletRules}, {Legacy, model.IPv4, kubeletRules}}, want: Auto, says: "the kubelet has its chains"},
		{name: "docker in both", rules: []rules{{NFT, model.IPv4, dockerRules}, {Legacy, model.IPv6, oneRule}}, want: Auto, says: "nothing shows"},
		{name: "ours in legacy", ours: Legacy, want: Legacy, says: "our own"},
		{name: "ours in nft", ours: NFT, want: NFT, says: "our own"},
		{name: "ours in nft, docker in legacy", ours: NFT, rules: []rules{{Legacy, model.IPv4, dockerRules}}, want: Legacy, says: "other programs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := tablestest.NewNamespace(t, append(toolsOf(Legacy), toolsOf(NFT)...)...)
			for _, r := range c.rules {
				host{ns, r.variant}.restore(t, r.family, r.text)
			}
			if c.ours != Auto {
				h := host{ns, c.ours}
				h.addSets(t)
				table := h.open(t)
				loadExample(table)
				apply(t, table)
			}
			v, why, err := Detect(t.Context(), ns.FD)
			if c.want == Auto {
				if err == nil {
					t.Fatalf("chose %s: %s", v, why)
				}
				why = err.Error()
			} else if err != nil || v != c.want {
				t.Fatalf("chose %s (%s), %v, want %s", v, why, err, c.want)
			}
			for _, w := range []string{c.says, "set iptables.variant to"} {
				if !strings.Contains(why, w) {
					t.Errorf("%q does not say %q", why, w)
				}
			}
		})
	}
}

// Where only some programs are installed, they are used; a plain iptables-restore
// counts for the variant that it says it is.
func TestDetectByPrograms(t *testing.T) {
	ns := tablestest.NewNamespace(t, append(toolsOf(Legacy), toolsOf(NFT)...)...)
	for _, c := range []struct {
		name    string
		links   map[string]string // to programs of this host
		want    Variant
		wantErr error
	}{
		{"none", nil, Auto, exec.ErrNotFound},
		{"legacy", map[string]string{"iptables-legacy-": "iptables-legacy-", "ip6tables-legacy-": "ip6tables-legacy-"}, Legacy, nil},
		{"plain nft", map[string]string{"iptables-": "iptables-nft-", "ip6tables-": "ip6tables-nft-"}, NFT, nil},
		{"plain legacy", map[string]string{"iptables-": "iptables-legacy-", "ip6tables-": "ip6tables-legacy-"}, Legacy, nil},
		{"no IPv6", map[string]string{"iptables-": "iptables-legacy-"}, Auto, exec.ErrNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for link, to := range c.links {
				for _, program := range []string{"save", "restore"} {
					path, err := exec.LookPath(to + program)
					if err != nil {
						t.Fatal(err)
					}
					// A script, since the program goes by the name that it is run by.
					script := "#!/bin/sh\nexec " + path + ` "$@"` + "\n"
					if err := os.WriteFile(filepath.Join(dir, link+program), []byte(script), 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Setenv("PATH", dir)
			v, why, err := Detect(t.Context(), ns.FD)
			if v != c.want || !errors.Is(err, c.wantErr) {
				t.Errorf("chose %s (%s), %v, want %s", v, why, err, c.want)
			}
		})
	}
}

func TestParseVariant(t *testing.T) {
	for _, v := range []Variant{Auto, Legacy, NFT} {
		if got, err := ParseVariant(v.String()); got != v || err != nil {
			t.Errorf("%s: %s, %v", v, got, err)
		}
	}
	if _, err := ParseVariant("xtables"); err == nil {
		t.Error("an unknown variant was taken")
	}
}
