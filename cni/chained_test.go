package cni

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
)

// spaces makes network namespaces, and runs "ip" in the first one, the node's.
func spaces(t *testing.T, names ...string) (in map[string]*namespace.Namespace, ip func(string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	in = map[string]*namespace.Namespace{}
	for _, name := range names {
		ns, err := namespace.Create(fmt.Sprintf("flx-chained-%d-%s", os.Getpid(), name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ns.Close()
			if err := namespace.Delete(ns.Name()); err != nil {
				t.Error(err)
			}
		})
		in[name] = ns
	}
	return in, func(line string) {
		t.Helper()
		for name, ns := range in {
			line = strings.ReplaceAll(line, "@"+name, ns.Name())
		}
		if err := in[names[0]].Do(func() error {
			out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFind: which interfaces of other plugins are known, and why others are refused.
func TestFind(t *testing.T) {
	in, ip := spaces(t, "node", "a", "b", "c", "d", "e")
	ip("link add cni0 type bridge")
	for _, line := range []string{
		"link add va type veth peer name eth0 netns @a", "link set va master cni0", "-n @a addr add 10.9.0.2/24 dev eth0",
		"link add vb type veth peer name eth0 netns @b", "-n @b addr add 10.9.1.2/32 dev eth0", "-n @b addr add fd09::2/128 dev eth0 nodad",
		"-n @c link add eth0 type bridge", "-n @c addr add 10.9.2.2/24 dev eth0",
		"-n @d link add eth0 type veth peer name far netns @c", "-n @d addr add 10.9.3.2/24 dev eth0",
		"link add br1 type bridge", "link add vx type vxlan id 7 dstport 4000 dev lo", "link set vx master br1",
		"link add ve type veth peer name eth0 netns @e", "link set ve master br1", "-n @e addr add 10.9.4.2/24 dev eth0",
	} {
		ip(line)
	}
	for _, c := range []struct {
		pod, addresses, iface, bridge, err string
	}{
		{"a", "10.9.0.2/24", "va", "cni0", ""},
		{"b", "fd09::2/128 10.9.1.2/32", "vb", "", ""},
		{"b", "10.9.1.3/32", "", "", "interface eth0 has no address 10.9.1.3"},
		{"b", "", "", "", "gave interface eth0 no address"},
		{"b", "10.9.1.2", "", "", `address "10.9.1.2"`},
		{"c", "10.9.2.2/24", "", "", "interface eth0 is a bridge, but networkPolicyOnly needs a veth pair"},
		{"d", "10.9.3.2/24", "", "", "the other end of interface eth0 is not in this node's network namespace"},
		{"e", "10.9.4.2/24", "", "", "bridge br1 has the port vx, which is no pod's"},
	} {
		var a *model.Attachment
		spec := Spec{Pod: model.PodID{Namespace: "x", Name: c.pod}, Owner: "s-" + c.pod, NetNS: in[c.pod].Path(), Interface: "eth0"}
		err := in["node"].Do(func() (err error) {
			a, err = find(spec, strings.Fields(c.addresses))
			return err
		})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s with %q: error %v, want %q", c.pod, c.addresses, err, c.err)
			}
			continue
		}
		if err != nil || a.Interface != c.iface || a.Bridge != c.bridge || len(a.MAC) != 6 || len(a.Addresses) != len(strings.Fields(c.addresses)) {
			t.Errorf("%s: %+v %v", c.pod, a, err)
		}
	}
}

// TestAdopt: pods that were attached before are known by the runtime's copies of results, also after a restart; those that cannot be known are
// named, and copies that are left over are not.
func TestAdopt(t *testing.T) {
	in, ip := spaces(t, "node", "a", "c")
	for _, line := range []string{
		"link add va type veth peer name eth0 netns @a", "-n @a addr add 10.9.0.2/32 dev eth0",
		"-n @c link add eth0 type bridge", "-n @c addr add 10.9.2.2/24 dev eth0",
	} {
		ip(line)
	}
	dir := t.TempDir()
	results := filepath.Join(dir, "results")
	if err := os.Mkdir(results, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ pod, netns, iface, address string }{
		{"a", in["a"].Path(), "eth0", "10.9.0.2/32"},
		{"a", in["a"].Path(), "lo", "127.0.0.1/8"},
		{"c", in["c"].Path(), "eth0", "10.9.2.2/24"},
		{"gone", "/run/netns/of-another-life", "eth0", "10.9.3.2/24"},
	} {
		text, err := json.Marshal(map[string]any{
			"kind": libcni.CNICacheV1, "containerId": "s-" + c.pod, "ifName": c.iface, "networkName": "other",
			"cniArgs": [][2]string{{"K8S_POD_NAMESPACE", "x"}, {"K8S_POD_NAME", c.pod}},
			"result": map[string]any{
				"cniVersion": "0.4.0", "interfaces": []map[string]any{{"name": c.iface, "sandbox": c.netns}},
				"ips": []map[string]any{{"version": "4", "address": c.address, "interface": 0}},
			},
		})
		if err == nil {
			err = os.WriteFile(filepath.Join(results, "other-s-"+c.pod+"-"+c.iface), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(dir, "run", "cni.sock")
	for _, when := range []string{"at first", "after a restart"} {
		if err := in["node"].Do(func() error {
			c, err := NewChained(socket, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			if err := c.Adopt(dir); err != nil {
				return err
			}
			all, err := c.Attachments(t.Context())
			if len(all) != 1 || all[0].Interface != "va" || all[0].Pod.Name != "a" || all[0].Sandbox != "s-a" {
				t.Errorf("%s: %+v", when, all)
			}
			problems := c.Problems()
			if len(problems) != 1 || problems[0].Object.Name != "c" || !strings.Contains(problems[0].Reason, "is a bridge") {
				t.Errorf("%s: problems %v", when, problems)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
