package lab

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/underlay"
)

// TestDatapathWithoutModule: a lab whose agents could never program the kernel's datapath is
// refused with the reason, before anything is made.
func TestDatapathWithoutModule(t *testing.T) {
	if underlay.KernelDatapath() == nil {
		t.Skip("this kernel has the module openvswitch")
	}
	config := Config{Name: "bad", Root: filepath.Join(t.TempDir(), "labs"), Agent: "/bin/true", Datapath: ovsdb.DatapathSystem}
	if err := config.Check(); err == nil || !strings.Contains(err.Error(), "module openvswitch does not answer") || !strings.Contains(err.Error(), "netdev needs no module") {
		t.Errorf("error %v", err)
	}
}

// TestSet: settings with a field go there, others to the agents; what the lab needs itself, and what agents would refuse, is refused.
func TestSet(t *testing.T) {
	good := Config{Name: "good", Agent: "/bin/true"}
	for _, text := range []string{"serviceProxy=full", "masquerade=false", "resyncInterval=30s"} {
		if err := good.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := good.Check(); err != nil || good.ServiceProxy != "full" || !slices.Equal(good.Settings(), []string{"masquerade=false", "resyncInterval=30s", "serviceProxy=full"}) {
		t.Errorf("%q, %v", good.Settings(), err)
	}
	for text, want := range map[string]string{
		"runDir=/tmp":   "runDir: the lab sets it itself",
		"mtu=1400":      "mtu: the lab sets it itself",
		"serviceProxy=": `"" is not one of`,
		"masquerad=no":  `did you mean "masquerade"`,
		"masquerade=no": `"no" is neither true nor false`,
		"snat=openflow": "snat: openflow does not work with backend nftables",
		"verify=always": `"always" is not one of`,
	} {
		bad := Config{Name: "bad", Agent: "/bin/true"}
		err := bad.Set(text)
		if err == nil {
			err = bad.Check()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestBadChoicesFailBeforeAnythingIsMade(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Tunnel: "gnv"}, `tunnel: "gnv" is not one of geneve, vxlan, gre`},
		{Config{Datapath: "kernel"}, `datapath: "kernel" is not one of auto, system, netdev`},
		{Config{Backend: "ebpf"}, `backend: "ebpf" is not one of nftables`},
		{Config{TrafficMode: "networkPolicyOnly"}, "trafficMode networkPolicyOnly is for nodes where another CNI plugin carries the packets of pods: a lab has none"},
		{Config{LogLevel: "loud"}, `logLevel: "loud" is not one of`},
	} {
		c.config.Name, c.config.Root, c.config.Agent = "bad", filepath.Join(t.TempDir(), "labs"), "/bin/true"
		if err := c.config.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
		if Available() == nil {
			if _, err := Up(t.Context(), c.config); err == nil {
				t.Errorf("%s: a lab came up", c.want)
			}
		}
		if _, err := os.Stat(c.config.Root); err == nil {
			t.Errorf("%s: something was made", c.want)
		}
	}
}
