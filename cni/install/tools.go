package install

import (
	"os/exec"
	"strings"
)

// tools looks for the programs that the backend starts, and for those that felixctl
// starts to show the programmed state.
func tools(backend string) []Finding {
	var needed []string
	if backend == "iptables" || strings.HasPrefix(backend, "iptables-") {
		variant := strings.TrimPrefix(strings.TrimPrefix(backend, "iptables"), "-")
		for _, base := range []string{"iptables", "ip6tables"} {
			if variant != "" {
				base += "-" + variant
			}
			needed = append(needed, base+"-save", base+"-restore")
		}
	}
	shows := map[string]string{
		"nft": "felixctl dump, diff and trace", "ovs-ofctl": "felixctl dump, diff and trace", "ipset": "felixctl dump of iptables",
	}
	var found []Finding
	if absent := absent(needed); len(absent) > 0 {
		found = append(found, Finding{Missing, "programs", "the backend starts " + strings.Join(absent, ", ") + ": install iptables"})
	} else if len(needed) > 0 {
		found = append(found, Finding{Good, "programs", "found: " + strings.Join(needed, ", ")})
	}
	for _, name := range []string{"nft", "ovs-ofctl", "ipset"} {
		if len(absent([]string{name})) > 0 {
			found = append(found, Finding{Noted, "program " + name, "not found: " + shows[name] + " cannot read the programmed state; the agent does not need it"})
		}
	}
	return found
}

func absent(names []string) []string {
	var missing []string
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}
