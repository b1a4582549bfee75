package ctl

import (
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
)

func TestFindWriters(t *testing.T) {
	tables, err := dump.ParseNFT(strings.NewReader(`table inet calico {
	chain cali-forward {
		type filter hook forward priority filter; policy drop;
	}
}
table ip filter {
	chain DOCKER {
	}
	chain own {
		type filter hook forward priority filter; policy accept;
	}
}
table inet felixlike {
	chain forward {
		type filter hook forward priority filter; policy accept;
	}
}
`))
	if err != nil {
		t.Fatal(err)
	}
	s := &dump.State{Tables: tables, IPSets: []*dump.Set{{Name: "KUBE-ROUTER-PODS"}}}
	found := findWriters(s)
	for who, want := range map[string]string{"Calico": "chain cali-forward (inet calico)", "Docker": "chain DOCKER (ip filter)", "kube-router": "ipset KUBE-ROUTER-PODS"} {
		if !slices.Equal(found[who], []string{want}) {
			t.Errorf("%s: %q, want %q", who, found[who], want)
		}
	}
	if len(found) != 3 {
		t.Errorf("found %v", found)
	}
	if got := drops(s); !slices.Equal(got, []string{"inet calico"}) {
		t.Errorf("drops in %q", got)
	}
}
