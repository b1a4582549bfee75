package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/cni/install"
)

// otherWriters are agents that judge or translate packets too, by how the names of
// their tables and chains begin.
func otherWriters() map[string]string {
	return map[string]string{
		"cali-": "Calico", "cali_": "Calico", "CILIUM": "Cilium", "cilium": "Cilium", "ANTREA": "Antrea", "antrea": "Antrea",
		"KUBE-ROUTER": "kube-router", "KUBE-NWPLCY": "kube-router", "KUBE-POD-FW": "kube-router", "WEAVE": "Weave Net", "AZURE-NPM": "Azure NPM",
		"kindnet": "kindnet", "kube-network-policies": "kube-network-policies", "FLANNEL": "flannel", "ts-": "Tailscale", "DOCKER": "Docker", "firewalld": "firewalld", "ufw": "ufw",
	}
}

// policyWriters are those that judge pods: two of them on a node contradict each
// other.
func policyWriters() []string {
	return []string{"Calico", "Cilium", "Antrea", "kube-router", "Weave Net", "Azure NPM", "kindnet", "kube-network-policies"}
}

// writers looks for rules of others that may decide about pods' packets.
func writers(ctx context.Context) []install.Finding {
	const what = "other writers of rules"
	parts, err := live.Read(ctx, live.Node{}, live.Options{Everything: true})
	var state *dump.State
	if err == nil {
		state, err = live.Parse(parts)
	}
	if err != nil {
		return []install.Finding{{Level: install.Noted, What: what, Detail: fmt.Sprintf("unknown: %v", err)}}
	}
	found := findWriters(state)
	var all []install.Finding
	for _, name := range slices.Sorted(maps.Keys(found)) {
		f := install.Finding{Level: install.Good, What: name, Detail: "has " + strings.Join(found[name], ", ")}
		if slices.Contains(policyWriters(), name) {
			f.Level = install.Noted
			f.Detail += ": it judges pods as well, and a packet has to pass both; remove it if it is not meant to"
		}
		all = append(all, f)
	}
	if families := drops(state); len(families) > 0 {
		all = append(all, install.Finding{
			Level: install.Noted, What: "policy of FORWARD",
			Detail: "drop in " + strings.Join(families, ", ") + ": packets that felixlike allows may be dropped behind it (backend nftables); another rule has to accept them",
		})
	}
	if len(all) == 0 {
		all = append(all, install.Finding{Level: install.Good, What: what, Detail: "none that is known"})
	}
	return all
}

// findWriters returns the writers with some of the names that they are known by.
func findWriters(s *dump.State) map[string][]string {
	found := map[string][]string{}
	note := func(name, where string) {
		for begin, who := range otherWriters() {
			if strings.HasPrefix(name, begin) && len(found[who]) < shownNames && !slices.Contains(found[who], where) {
				found[who] = append(found[who], where)
			}
		}
	}
	for _, t := range s.Tables {
		note(t.Name, fmt.Sprintf("table %s %s", t.Family, t.Name))
		for _, c := range t.Chains {
			note(c.Name, fmt.Sprintf("chain %s (%s %s)", c.Name, t.Family, t.Name))
		}
	}
	for _, set := range s.IPSets {
		note(set.Name, "ipset "+set.Name)
	}
	return found
}

// shownNames bounds the printed names of one writer.
const shownNames = 2

// drops names the base chains of others at the forward hook that drop by default.
func drops(s *dump.State) []string {
	var all []string
	for _, t := range s.Tables {
		for _, c := range t.Chains {
			if c.Hook != nil && c.Hook.Point == "forward" && strings.EqualFold(c.Policy, "drop") {
				all = append(all, fmt.Sprintf("%s %s", t.Family, t.Name))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
