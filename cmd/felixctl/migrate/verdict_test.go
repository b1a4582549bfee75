package migrate

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

var update = flag.Bool("update", false, "write the output and the losses of the cases")

// world has the addresses of the verdict tables. The pods of namespace shop are on node n1, the others on n2.
var world = map[string]string{
	"shop/web": "10.0.1.10", "shop/db": "10.0.1.11", "shop/api": "10.0.1.12", "other/web": "10.0.2.10", "kube-system/dns": "10.0.2.11",
	"n1": "192.0.2.1", "n2": "192.0.2.2", "outside": "203.0.113.5", "partner": "198.51.100.7", "partner-guest": "198.51.100.130",
}

// TestVerdicts converts the input of each case. The oracle judges the converted objects, and must give the table of verdicts, which is
// written by hand from the documents of the original.
func TestVerdicts(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal("no cases", err)
	}
	probes := 0
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string]*txtar.File{}
			for i, f := range archive.Files {
				sections[f.Name] = &archive.Files[i]
			}
			documents, err := parse(sections["input.yaml"].Data)
			if err != nil {
				t.Fatal(err)
			}
			var options Options
			if o := sections["cluster-cidr"]; o != nil {
				if options.ClusterCIDRs, err = prefixes(strings.Fields(string(o.Data))); err != nil {
					t.Fatal(err)
				}
			}
			result, err := convert(documents, options)
			if err != nil {
				t.Fatal(err)
			}
			output, err := result.YAML()
			if err != nil {
				t.Fatal(err)
			}
			probes += judge(t, output, string(sections["verdicts"].Data))
			var lost bytes.Buffer
			if err := printLosses(&lost, result); err != nil {
				t.Fatal(err)
			}
			for section, text := range map[string][]byte{"output.yaml": output, "lost": lost.Bytes()} {
				if *update {
					sections[section].Data = text
				} else if diff := cmp.Diff(string(sections[section].Data), string(text)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", section, diff)
				}
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	t.Logf("%d verdicts", probes)
}

// judge compares the verdicts of the oracle with the lines "FROM TO PORT VERDICT", and returns their number.
func judge(t *testing.T, output []byte, table string) int {
	cluster := clusterOf(t, output)
	probes := 0
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) != 4 {
			t.Fatalf("malformed line %q", line)
		}
		protocol, number, _ := strings.Cut(fields[2], "/")
		p := oracle.Packet{Source: addressOf(t, fields[0]), Destination: addressOf(t, fields[1])}
		var err error
		if p.Protocol = model.ICMP; protocol != "icmp" {
			if p.Protocol, err = model.ParseProtocol(strings.ToUpper(protocol)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := fmt.Sscan(number, &p.Port); err != nil {
			t.Fatal(err)
		}
		if p.Protocol == model.ICMP {
			p.Port *= 256 // the type; the code is 0
		}
		got := "denied"
		verdict := cluster.Evaluate(p)
		if verdict.Allowed {
			got = "allowed"
		}
		if probes++; got != fields[3] {
			t.Errorf("%s is %s: %+v", strings.TrimSpace(line), got, verdict)
		}
	}
	return probes
}

func addressOf(t *testing.T, name string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(world[name])
	if err != nil {
		t.Fatalf("%q: %v", name, err)
	}
	return a
}

// clusterOf returns the cluster of the tables with the policies of an output.
func clusterOf(t *testing.T, output []byte) *oracle.Cluster {
	c := &oracle.Cluster{}
	for name, prefix := range map[string]string{"n1": "10.0.1.0/24", "n2": "10.0.2.0/24"} {
		c.Nodes = append(c.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: prefix, PodCIDRs: []string{prefix}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: world[name]}}},
		})
	}
	for name, team := range map[string]string{"shop": "a", "other": "b", "kube-system": "system"} {
		c.Namespaces = append(c.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team, corev1.LabelMetadataName: name}}})
	}
	for id, address := range world {
		namespace, name, isPod := strings.Cut(id, "/")
		if !isPod {
			continue
		}
		node := "n2"
		if namespace == "shop" {
			node = "n1"
		}
		c.Pods = append(c.Pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"role": name}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: address}}},
		})
	}
	events, _ := manifests.Parse("output.yaml", output)
	for _, e := range events {
		switch set := e.(type) {
		case datastore.NetworkPolicySet:
			c.Policies = append(c.Policies, set.Policy)
		case datastore.ClusterNetworkPolicySet:
			c.ClusterPolicies = append(c.ClusterPolicies, set.Policy)
		case datastore.AntreaSet:
			c.Antrea.Put(set.Object)
		}
	}
	return c
}

// TestMessages: a rule is converted for types that begin something in its IP version. It is not converted for a type that
// begins something only in the other version: Antrea's rules would match it there, too.
func TestMessages(t *testing.T) {
	number := func(n int32) *int32 { return &n }
	for _, test := range []struct {
		family     model.Family
		kind, code *int32
		want       string
	}{
		{model.IPv4, nil, nil, "8 13 15 17"},
		{model.IPv6, nil, nil, "128 139"},
		{model.IPv4, number(8), nil, "8"},
		{model.IPv4, number(8), number(0), "8/0"},
		{model.IPv6, number(128), nil, "128"},
		{model.IPv4, number(128), nil, "others"},
		{model.IPv6, number(8), nil, "others"},
		{model.IPv4, number(0), nil, "others"},
		{model.IPv4, number(256), nil, "error"},
		{model.IPv4, nil, number(0), "error"},
		{model.IPv4, number(8), number(256), "error"},
	} {
		all, err := messages(test.family, test.kind, test.code)
		var words []string
		for _, m := range all {
			word := fmt.Sprint(*m.Type)
			if m.Code != nil {
				word += fmt.Sprintf("/%d", *m.Code)
			}
			words = append(words, word)
		}
		switch {
		case errors.Is(err, errBeginsNothing):
			words = []string{"others"}
		case err != nil:
			words = []string{"error"}
		}
		if got := strings.Join(words, " "); got != test.want {
			t.Errorf("%s, %v: %q, want %q", test.family, test.kind, got, test.want)
		}
	}
}

// TestNetPeers: as in Calico, a rule is for the IP versions alone of which all its lists have a prefix.
func TestNetPeers(t *testing.T) {
	for _, test := range []struct {
		nets, not string
		version   int
		want      string
	}{
		{"", "", 4, "0.0.0.0/0"},
		{"", "", 6, "::/0"},
		{"", "198.51.100.0/24", 0, "0.0.0.0/0-198.51.100.0/24"},
		{"", "2001:db8::/32", 0, "::/0-2001:db8::/32"},
		{"", "198.51.100.0/24 2001:db8::/32", 0, "0.0.0.0/0-198.51.100.0/24 ::/0-2001:db8::/32"},
		{"", "0.0.0.0/0", 0, ""},
		{"10.0.0.0/8 2001:db8::/32", "10.1.0.0/16", 0, "10.0.0.0/8-10.1.0.0/16"},
		{"10.0.0.0/8", "2001:db8::/32", 0, ""},
		{"10.0.0.0/8", "192.0.2.0/24", 0, "10.0.0.0/8"},
	} {
		peers, err := netPeers(strings.Fields(test.nets), strings.Fields(test.not), test.version)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, p := range peers {
			all = append(all, strings.Join(append([]string{p.block.CIDR}, p.block.Except...), "-"))
		}
		if got := strings.Join(all, " "); got != test.want {
			t.Errorf("%q without %q, version %d: %q, want %q", test.nets, test.not, test.version, got, test.want)
		}
	}
}

// TestMalformedEgressNetworkPolicy: one that denies and that felixlike cannot decode may allow more, because the API server may refuse it.
func TestMalformedEgressNetworkPolicy(t *testing.T) {
	for kind, more := range map[string]bool{"Deny": true, "Allow": false} {
		documents, err := parse([]byte("apiVersion: network.openshift.io/v1\nkind: EgressNetworkPolicy\nmetadata: {namespace: x, name: p}\nspec: {egress: [{type: " + kind + ", to: {cidrSelector: 198.51.100.0/24, port: 80}}]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		result, err := convert(documents, Options{})
		if err != nil {
			t.Fatal(err)
		}
		losses := result.Objects[0].Losses
		if len(losses) == 0 || losses[0].Field != "spec.egress[0].to.port" || losses[0].AllowsMore != more {
			t.Errorf("%s: %v", kind, losses)
		}
	}
}
