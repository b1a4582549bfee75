package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func load(t *testing.T, file string, environ []string, args ...string) (*Effective, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	if file != "" {
		path := filepath.Join(t.TempDir(), "agent.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(flags, environ)
}

const header = "apiVersion: felixlike.io/v1alpha1\nkind: AgentConfig\n"

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	e, err := load(t, header+"mtu: 1400\ntunnel: vxlan\nresyncInterval: 30s\nmasquerade: false\n",
		[]string{
			"FELIXLIKE_MTU=1300", "FELIXLIKE_OVS_RUN_DIR=/env", "HOME=/root",
			"FELIXLIKE_SERVICE_HOST=10.0.0.1", "FELIXLIKE_PORT_80_TCP=tcp://10.0.0.1:80",
		}, "--ovs-run-dir", "/flag", "--node-name", "n1")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]string{
		"mtu": {"1300", FromEnvironment}, "tunnel": {"vxlan", FromFile}, "ovsRunDir": {"/flag", FromFlag},
		"nodeName": {"n1", FromFlag}, "bridge": {"br-int", FromDefault}, "resyncInterval": {"30s", FromFile}, "masquerade": {"false", FromFile},
	}
	for _, r := range e.Rows() {
		if w, ok := want[r.Key]; ok && (r.Value != w[0] || r.Origin != w[1]) {
			t.Errorf("%s = %s from %s, want %s from %s", r.Key, r.Value, r.Origin, w[0], w[1])
		}
	}
	if time.Duration(e.ResyncInterval) != 30*time.Second || e.Masquerade || e.MTU != 1300 {
		t.Errorf("typed values: %+v", e.Config)
	}
}

func TestAPIServers(t *testing.T) {
	e, err := load(t, header+"serviceProxy: full\ndatastore: kubernetes\napiServer: [192.0.2.10, \"[2001:db8::1]:443\", \"2001:db8::2\", api.example.org]\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.APIServer.String(), "192.0.2.10:6443,[2001:db8::1]:443,[2001:db8::2]:6443,api.example.org:6443"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := load(t, header+"serviceProxy: full\n", nil); err != nil {
		t.Errorf("manifests need no API server: %v", err)
	}
}

func TestBadSettingsAreNamed(t *testing.T) {
	for _, c := range []struct {
		name, file string
		environ    []string
		args       []string
		want       string
	}{
		{"unknown key", header + "colour: blue\n", nil, nil, `unknown setting "colour"`},
		{"wrong kind", "apiVersion: v1\nkind: ConfigMap\n", nil, nil, "apiVersion and kind must be"},
		{"duplicate key", header + "mtu: 1400\nmtu: 1300\n", nil, nil, "mtu"},
		{"unknown environment", "", []string{"FELIXLIKE_COLOUR=blue"}, nil, "unknown setting FELIXLIKE_COLOUR"},
		{"bad number", "", []string{"FELIXLIKE_MTU=big"}, nil, `"big" is not a whole number`},
		{"bad bool", header + "masquerade: perhaps\n", nil, nil, "masquerade: perhaps: must be true or false"},
		{"null", header + "manifests: null\n", nil, nil, "manifests: <nil>: must be a string"},
		{"number for a name", header + "nodeName: 7\n", nil, nil, "nodeName: 7: must be a string"},
		{"list for a name", header + "uplink: [a]\n", nil, nil, "uplink: [a]: must be a string"},
		{"string for a number", header + "mtu: \"1400\"\n", nil, nil, "mtu: 1400: must be a whole number"},
		{"fraction", header + "mtu: 1400.5\n", nil, nil, `mtu: "1400.5" is not a whole number`},
		{"big number", header + "mtu: 1000000\n", nil, nil, "mtu: 1000000 is neither 0 nor between"},
		{"string for a bool", header + "masquerade: \"true\"\n", nil, nil, "masquerade: true: must be true or false"},
		{"number for a duration", header + "resyncInterval: 90\n", nil, nil, "resyncInterval: 90: must be a string"},
		{"bad bool in the environment", "", []string{"FELIXLIKE_MASQUERADE=perhaps"}, nil, `"perhaps" is neither true nor false`},
		{"bad backend", "", nil, []string{"--backend", "ebpf"}, `backend: "ebpf" is not one of nftables, iptables, iptables-legacy, iptables-nft, openflow`},
		{"mtu", "", nil, []string{"--mtu", "100"}, "mtu: 100 is neither 0 nor between"},
		{"health address without port", "", nil, []string{"--health-address", "10.0.0.1"}, `healthAddress: "10.0.0.1" is not address:port`},
		{"health address by name", "", nil, []string{"--health-address", "localhost:80"}, `healthAddress: "localhost:80" is not`},
		{"health port", "", nil, []string{"--health-address", "[::1]:99999"}, `healthAddress: "[::1]:99999" is not`},
		{"service prefix", "", []string{"FELIXLIKE_SERVICE_CIDRS=10.96.0.0"}, nil, `"10.96.0.0" is not a prefix`},
		{"service prefix with host bits", "", nil, []string{"--service-cidrs", "10.96.0.1/12"}, "serviceCIDRs: 10.96.0.1/12 has bits behind its length: 10.96.0.0/12 is meant"},
		{"all as service prefix", "", nil, []string{"--service-cidrs", "0.0.0.0/0"}, "0.0.0.0/0 cannot be"},
		{"service prefixes overlap", header + "serviceCIDRs: [10.96.0.0/12, 10.96.0.0/16]\n", nil, nil, "10.96.0.0/12 and 10.96.0.0/16 overlap"},
		{"number as service prefix", header + "serviceCIDRs: [10]\n", nil, nil, "serviceCIDRs: [10]: must be a list of prefixes"},
		{"empty", "", nil, []string{"--bridge", ""}, "bridge: must not be empty"},
		{"mode of another network", "", nil, []string{"--traffic-mode", "policyOnly"}, `trafficMode: "policyOnly" is not one of encap, noEncap, hybrid`},
		{"encryption by another protocol", "", nil, []string{"--encryption", "ipsec"}, `encryption: "ipsec" is not one of none, wireguard`},
		{"encryption without a tunnel", "", nil, []string{"--encryption", "wireguard", "--traffic-mode", "hybrid"}, "does not work with trafficMode hybrid: set trafficMode to encap"},
		{"policy only under openflow", "", nil, []string{"--traffic-mode", "networkPolicyOnly", "--backend", "openflow"}, "with networkPolicyOnly there is no bridge for backend openflow: choose nftables or iptables"},
		{"exclusive with policy only", "", nil, []string{"--traffic-mode", "networkPolicyOnly", "--exclusive", "true"}, "exclusive: with trafficMode networkPolicyOnly"},
		{"revalidation with policy only", "", nil, []string{"--traffic-mode", "networkPolicyOnly", "--existing-connections", "revalidate"}, "existingConnections: revalidate does not work"},
		{"encryption with policy only", "", nil, []string{"--traffic-mode", "networkPolicyOnly", "--encryption", "wireguard"}, "does not work with trafficMode networkPolicyOnly"},
		{"translation under nftables", "", nil, []string{"--snat", "openflow"}, "snat: openflow does not work with backend nftables, which sees packets in the host only: set snat to host"},
		{"translation by the kernel's datapath", "", nil, []string{"--snat", "openflow", "--backend", "openflow", "--datapath", "system"}, "snat: openflow needs datapath netdev"},
		{"translation without a tunnel", "", nil, []string{"--snat", "openflow", "--backend", "openflow", "--traffic-mode", "hybrid"}, "snat: openflow works with trafficMode encap only"},
		{"translation with encryption", "", nil, []string{"--snat", "openflow", "--backend", "openflow", "--encryption", "wireguard"}, "snat: openflow works with trafficMode encap only, without encryption"},
		{"translation of nothing", "", nil, []string{"--snat", "openflow", "--backend", "openflow", "--masquerade", "false"}, "snat: with masquerade false there is nothing to translate"},
		{"proxy by another program", "", nil, []string{"--service-proxy", "kube"}, `serviceProxy: "kube" is not one of off, full`},
		{"proxy without API servers", "", nil, []string{"--service-proxy", "full", "--datastore", "kubernetes"}, "apiServer: with serviceProxy full name the addresses of the API servers"},
		{"proxy beside another CNI", "", nil, []string{"--service-proxy", "full", "--traffic-mode", "networkPolicyOnly"}, "serviceProxy: full does not work with trafficMode networkPolicyOnly"},
		{"isolation of something else", "", nil, []string{"--isolation", "pods"}, `isolation: "pods" is not one of none, namespaces`},
		{"isolation beside another CNI", "", nil, []string{"--isolation", "namespaces", "--traffic-mode", "networkPolicyOnly"}, "isolation: namespaces does not work with trafficMode networkPolicyOnly, where"},
		{"two API servers", "", nil, []string{"--api-server", "192.0.2.10", "--kubeconfig", "/k"}, "apiServer: kubeconfig names the API server"},
		{"API server by URL", header + "apiServer: [https://192.0.2.10]\n", nil, nil, `apiServer: "https://192.0.2.10" is not an address, name, address:port or name:port`},
		{"API server on no port", "", []string{"FELIXLIKE_API_SERVER=192.0.2.10:0"}, nil, `"192.0.2.10:0" is not an address`},
		{"number as API server", header + "apiServer: [10]\n", nil, nil, "apiServer: [10]: must be a list of addresses"},
		{"addresses of node ports with host bits", "", nil, []string{"--node-port-addresses", "192.0.2.10/24"}, "nodePortAddresses: 192.0.2.10/24 has bits behind its length: 192.0.2.0/24 is meant"},
		{"failsafe port without a number", "", nil, []string{"--failsafe-in", "tcp/"}, `flag --failsafe-in: "tcp/" is not a port`},
		{"failsafe port for no hosts", header + "failsafe: {in: ['tcp/22@']}\n", nil, nil, `failsafe.in: "tcp/22@": after @ there must be one prefix`},
		{"failsafe port for two prefixes", "", nil, []string{"--failsafe-in", "tcp/22@192.0.2.0/24@fd00::/8"}, `and not "192.0.2.0/24@fd00::/8"`},
		{"failsafe port for an address", "", nil, []string{"--failsafe-out", "tcp/22@192.0.2.1"}, `flag --failsafe-out: "tcp/22@192.0.2.1": after @ there must be one prefix`},
		{"failsafe port for mapped addresses", "", nil, []string{"--failsafe-out", "tcp/22@::ffff:192.0.2.0/120"}, "there must be one prefix"},
		{"failsafe port for host bits", "", []string{"FELIXLIKE_FAILSAFE_IN=tcp/22@fd00::1/64"}, nil, `"tcp/22@fd00::1/64": fd00::1/64 has bits behind its length: fd00::/64 is meant`},
		{"failsafe port twice", "", nil, []string{"--failsafe-in", "tcp/22,udp/22,tcp/22"}, `flag --failsafe-in: "tcp/22" is there twice`},
		{"failsafe port for hosts twice", "", nil, []string{"--failsafe-in", "tcp/22@10.0.0.0/8,tcp/22@10.0.0.0/8"}, `"tcp/22@10.0.0.0/8" is there twice`},
		{"failsafe port that is open to all", "", nil, []string{"--failsafe-in", "tcp/22@10.0.0.0/8,tcp/22"}, `"tcp/22@10.0.0.0/8" has no effect: "tcp/22" covers it`},
		{"failsafe port in a greater prefix", "", nil, []string{"--failsafe-in", "tcp/20-30@10.0.0.0/8,tcp/22@10.1.0.0/16"}, `"tcp/22@10.1.0.0/16" has no effect: "tcp/20-30@10.0.0.0/8" covers it`},
		{"port of encryption", header + "wireguard: {port: 70000}\n", nil, nil, "wireguard.port: 70000 is not between 1 and 65535"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := load(t, c.file, c.environ, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestAllBadSettingsAtOnce: one start names every setting that is wrong, in one order.
func TestAllBadSettingsAtOnce(t *testing.T) {
	const want = `configuration: backend: "ebpf" is not one of nftables, iptables, iptables-legacy, iptables-nft, openflow
tunnel: "ipip" is not one of geneve, vxlan, gre
bridge: must not be empty
mtu: 9 is neither 0 nor between 1280 (the least that IPv6 allows, RFC 8200) and 65535`
	_, err := load(t, "", []string{"FELIXLIKE_NODE_NAME=n1"}, "--backend", "ebpf", "--tunnel", "ipip", "--bridge", "", "--mtu", "9")
	if err == nil || err.Error() != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
}

// TestFaultsOfAllSourcesAtOnce: file, environment and flags are read to their ends. Each fault has
// its line in the file, and a misspelt word the one that is near.
func TestFaultsOfAllSourcesAtOnce(t *testing.T) {
	_, err := load(t, header+"mtu: big\ndatapth: auto\ncolour: blue\niptables:\n  varient: nft\n",
		[]string{"FELIXLIKE_NODE_NAME=n1", "FELIXLIKE_BAKEND=nftables", "FELIXLIKE_MASQUERADE=perhaps"}, "--resync-interval", "soon", "--backend", "nftabels")
	if err == nil {
		t.Fatal("no error")
	}
	const want = `configuration file FILE, line 3: mtu: big: must be a whole number
configuration file FILE, line 5: unknown setting "colour"
configuration file FILE, line 4: unknown setting "datapth", did you mean "datapath"?
configuration file FILE, line 7: unknown setting "iptables.varient", did you mean "iptables.variant"?
environment: unknown setting FELIXLIKE_BAKEND, did you mean "FELIXLIKE_BACKEND"?
environment: FELIXLIKE_MASQUERADE: "perhaps" is neither true nor false
flag --resync-interval: "soon" is not a duration such as 90s
configuration: backend: "nftabels" is not one of nftables, iptables, iptables-legacy, iptables-nft, openflow, did you mean "nftables"?`
	if got := regexp.MustCompile(`file /[^ ,]+`).ReplaceAllString(err.Error(), "file FILE"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNames(t *testing.T) {
	for key, want := range map[string][2]string{
		"ovsRunDir": {"ovs-run-dir", "FELIXLIKE_OVS_RUN_DIR"}, "mtu": {"mtu", "FELIXLIKE_MTU"}, "nodeName": {"node-name", "FELIXLIKE_NODE_NAME"},
		"serviceCIDRs": {"service-cidrs", "FELIXLIKE_SERVICE_CIDRS"}, "logLevel": {"log-level", "FELIXLIKE_LOG_LEVEL"},
	} {
		if FlagName(key) != want[0] || EnvName(key) != want[1] {
			t.Errorf("%s: %s %s, want %v", key, FlagName(key), EnvName(key), want)
		}
	}
}

func TestHealthAddresses(t *testing.T) {
	for _, good := range []string{"", ":9099", "[::1]:80", "192.168.1.1:10288"} {
		if _, err := load(t, "", nil, "--health-address", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func TestServiceCIDRs(t *testing.T) {
	const want = "10.96.0.0/12,fd00:96::/112"
	for name, c := range map[string]struct {
		file    string
		environ []string
		args    []string
	}{
		"list":        {header + "serviceCIDRs: [10.96.0.0/12, 'fd00:96::/112']\n", nil, nil},
		"text":        {header + "serviceCIDRs: 10.96.0.0/12, fd00:96::/112\n", nil, nil},
		"environment": {"", []string{"FELIXLIKE_SERVICE_CIDRS=" + want}, nil},
		"flag":        {"", nil, []string{"--service-cidrs", want}},
	} {
		e, err := load(t, c.file, c.environ, c.args...)
		if err != nil || e.ServiceCIDRs.String() != want || len(e.ServiceCIDRs) != 2 {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
	if e, err := load(t, header+"serviceCIDRs: []\n", nil); err != nil || e.ServiceCIDRs != nil {
		t.Errorf("none: %v, %v", e, err)
	}
}

// Every flag explains its setting, and names the choices.
func TestFlagsExplainThemselves(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	defaults := Defaults()
	for _, s := range settings(&defaults) {
		usage := flags.Lookup(FlagName(s.key)).Usage
		if s.help == "" || !strings.Contains(usage, EnvName(s.key)) {
			t.Errorf("--%s: %q", FlagName(s.key), usage)
		}
		for _, choice := range Choices(s.key) {
			if !strings.Contains(usage, choice) {
				t.Errorf("--%s does not name %s: %q", FlagName(s.key), choice, usage)
			}
		}
	}
}

// TestSetFlag: --set takes each setting by its key, like its flag; the flags are not in the help. Errors name the setting.
func TestSetFlag(t *testing.T) {
	load := func(args ...string) (*Effective, error) {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		AddSetFlag(flags)
		if text := flags.FlagUsages(); strings.Contains(text, "--service-proxy") || !strings.Contains(text, "--set KEY=VALUE") {
			t.Errorf("help\n%s", text)
		}
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		return Load(flags, []string{"FELIXLIKE_SNAT=openflow", "FELIXLIKE_NODE_NAME=n"})
	}
	e, err := load("--set", "nftables.layout=maps", "--set", "snat=openflow", "--set", "snat=host", "--set", "mtu=1400", "--mtu", "1500", "--set", "serviceCIDRs=10.96.0.0/16,fd96::/112")
	if err != nil {
		t.Fatal(err)
	}
	if e.NFTablesLayout != LayoutMaps || e.SNAT != HostSNAT || e.MTU != 1400 || len(e.ServiceCIDRs) != 2 || e.Origin["snat"] != FromFlag {
		t.Errorf("%+v", e)
	}
	for text, want := range map[string]string{
		"serviceproxy=full":  `--set serviceproxy=full: unknown setting "serviceproxy", did you mean "serviceProxy"?`,
		"mtu":                `"mtu": want KEY=VALUE`,
		"mtu=large":          `"large" is not a whole number`,
		"serviceProxy=fully": `"fully" is not one of`,
	} {
		if _, err := load("--set", "snat=host", "--set", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
