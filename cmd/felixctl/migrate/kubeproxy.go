package migrate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/internal/terminal"
)

// proxyMove says how the nodes of a cluster move from kube-proxy to the agents and back.
type proxyMove struct {
	// Settings has the settings of kube-proxy that somebody has to look at.
	Settings []proxySetting `json:"settings"`
	// Config are the agents' settings.
	Config proxyConfig `json:"config"`
	Steps  []step      `json:"steps"`
	// Back are the steps back.
	Back []step `json:"back"`
}

// proxyConfig are settings of the agents (docs/reference/settings.md).
type proxyConfig struct {
	ServiceProxy      string   `json:"serviceProxy"`
	APIServer         []string `json:"apiServer"`
	NodePortAddresses []string `json:"nodePortAddresses,omitempty"`
}

// proxySetting is a setting of kube-proxy, and what it becomes.
type proxySetting struct {
	Field string `json:"field"`
	Value string `json:"value"`
	Here  string `json:"here"`
	// Lost is set if the agents do otherwise.
	Lost bool `json:"lost,omitempty"`
}

// proxyFields has the fields of kube-proxy's configuration that the command reads (kubeproxy.config.k8s.io/v1alpha1).
type proxyFields struct {
	Kind              string   `json:"kind"`
	Mode              string   `json:"mode"`
	DetectLocalMode   string   `json:"detectLocalMode"`
	NodePortAddresses []string `json:"nodePortAddresses"`
	HealthzBind       string   `json:"healthzBindAddress"`
	IPTables          struct {
		MasqueradeAll      bool  `json:"masqueradeAll"`
		LocalhostNodePorts *bool `json:"localhostNodePorts"`
	} `json:"iptables"`
	NFTables struct {
		MasqueradeAll bool `json:"masqueradeAll"`
	} `json:"nftables"`
	IPVS struct {
		Scheduler string `json:"scheduler"`
		StrictARP bool   `json:"strictARP"`
	} `json:"ipvs"`
}

func (f *proxyFields) mode() string { return cmp.Or(f.Mode, "iptables") }

// proxyInput are the objects of kube-proxy.
type proxyInput struct {
	daemons *appsv1.DaemonSet
	config  *proxyFields
	server  string
}

func kubeProxyCommand() *cobra.Command {
	var in []string
	output := terminal.Text
	c := &cobra.Command{
		Use:   "kube-proxy -f FILE",
		Short: "Print the steps by which running nodes move from kube-proxy to serviceProxy: full, and back",
		Long: `Print the steps by which running nodes move from kube-proxy to serviceProxy: full, one by one, and the steps
back. It reads kube-proxy's DaemonSet and ConfigMap, as kubeadm makes them, and changes nothing. The settings of
kube-proxy that the agents do not have come first.

Exit codes: 0 the agents do all that kube-proxy is set to do; 1 otherwise; 2 the command failed.`,
		Example: `  kubectl -n kube-system get daemonset,configmap kube-proxy -o yaml > kube-proxy.yaml
  felixctl migrate kube-proxy -f kube-proxy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(in) == 0 {
				return errors.New("no input given: use -f FILE")
			}
			documents, err := read(in, c.InOrStdin())
			if err != nil {
				return err
			}
			p, err := proxyOf(documents)
			if err != nil {
				return err
			}
			m := p.move()
			if err := output.Print(c.OutOrStdout(), m, func() error { return m.print(c.OutOrStdout()) }); err != nil {
				return err
			}
			if slices.ContainsFunc(m.Settings, func(s proxySetting) bool { return s.Lost }) {
				return report.ErrFaults
			}
			return nil
		},
	}
	c.Flags().StringArrayVarP(&in, "filename", "f", nil, "file with kube-proxy's DaemonSet and ConfigMap; - is standard input")
	output.Flag(c)
	return c
}

// proxyOf finds kube-proxy's objects.
func proxyOf(documents []document) (p proxyInput, err error) {
	for _, d := range documents {
		switch d.ref.Kind {
		case "DaemonSet":
			if p.daemons != nil {
				return p, fmt.Errorf("%s: a second DaemonSet: give that of kube-proxy alone", d.ref)
			}
			p.daemons = &appsv1.DaemonSet{}
			if err := json.Unmarshal(d.raw, p.daemons); err != nil {
				return p, fmt.Errorf("%s: %w", d.ref, err)
			}
		case "ConfigMap":
			var m corev1.ConfigMap
			if err := json.Unmarshal(d.raw, &m); err != nil {
				return p, fmt.Errorf("%s: %w", d.ref, err)
			}
			for _, key := range []string{"config.conf", "kubeconfig.conf"} {
				if err := p.take(m.Data[key]); err != nil {
					return p, fmt.Errorf("%s: data.%s: %w", d.ref, key, err)
				}
			}
		}
	}
	switch {
	case p.daemons == nil || len(p.daemons.Spec.Template.Spec.Containers) == 0:
		return p, errors.New("no DaemonSet of kube-proxy in the input")
	case p.config == nil:
		return p, errors.New("no KubeProxyConfiguration in the input: it is in the ConfigMap of kube-proxy, data.config.conf")
	}
	return p, p.named()
}

// named returns an error unless the names and the selector of the DaemonSet are such that an API server takes.
func (p proxyInput) named() error {
	refused := func(field string, why ...string) error {
		return fmt.Errorf("DaemonSet %q: %s: %s", p.daemons.Namespace+"/"+p.daemons.Name, field, strings.Join(why, "; "))
	}
	if why := validation.IsDNS1123Label(p.daemons.Namespace); why != nil {
		return refused("metadata.namespace", why...)
	}
	if why := validation.IsDNS1123Subdomain(p.daemons.Name); why != nil {
		return refused("metadata.name", why...)
	}
	selector, err := metav1.LabelSelectorAsSelector(p.daemons.Spec.Selector)
	switch {
	case err != nil:
		return refused("spec.selector", err.Error())
	case selector.Empty() || p.daemons.Spec.Selector == nil:
		return refused("spec.selector", "required")
	}
	return nil
}

// take reads a file of the ConfigMap.
func (p *proxyInput) take(text string) error {
	var f proxyFields
	var k struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := errors.Join(yaml.Unmarshal([]byte(text), &f), yaml.Unmarshal([]byte(text), &k)); err != nil {
		return err
	}
	if f.Kind == "KubeProxyConfiguration" {
		p.config = &f
	}
	if len(k.Clusters) > 0 {
		p.server = k.Clusters[0].Cluster.Server
	}
	return nil
}

func (p proxyInput) move() *proxyMove {
	m := &proxyMove{Config: proxyConfig{ServiceProxy: "full"}}
	u, err := url.Parse(p.server)
	switch {
	case err != nil || u.Host == "":
		m.Config.APIServer = []string{"API-SERVER:6443"}
		m.add("kubeconfig.conf server", cmp.Or(p.server, "none"), "write the addresses of the API servers in place of API-SERVER", true)
	default:
		m.Config.APIServer = []string{net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))}
		m.add("kubeconfig.conf server", p.server, "apiServer", false)
		if _, err := netip.ParseAddr(u.Hostname()); err != nil {
			m.add("kubeconfig.conf server", u.Hostname(), "a name: a resolver that is a Service cannot resolve it before the agent serves Services; write addresses", true)
		}
	}
	p.settings(m)
	p.steps(m)
	printable.All(m)
	return m
}

func (m *proxyMove) add(field, value, here string, lost bool) {
	m.Settings = append(m.Settings, proxySetting{Field: field, Value: value, Here: here, Lost: lost})
}

// settings compares the settings of kube-proxy with what the agents do.
func (p proxyInput) settings(m *proxyMove) {
	c := p.config
	mode := c.mode()
	if mode == ipvsMode {
		m.add("mode", mode, "nftables; connections through Services end when kube-proxy's go: drain each node first", true)
		if s := c.IPVS.Scheduler; s != "" && s != "rr" {
			m.add("ipvs.scheduler", s, "endpoints are drawn at random", true)
		}
		if c.IPVS.StrictARP {
			m.add("ipvs.strictARP", "true", "not needed; net.ipv4.conf.all.arp_ignore and arp_announce are kept until the next reboot", false)
		}
	} else {
		m.add("mode", mode, "nftables, with one map of all endpoints", false)
	}
	switch {
	case slices.Contains(c.NodePortAddresses, "primary"), mode == "nftables" && len(c.NodePortAddresses) == 0: // its default
		m.add("nodePortAddresses", "primary", "set nodePortAddresses to the prefixes of the nodes' addresses; without it, all addresses serve node ports", true)
	case len(c.NodePortAddresses) > 0:
		m.Config.NodePortAddresses = c.NodePortAddresses
		m.add("nodePortAddresses", strings.Join(c.NodePortAddresses, ","), "nodePortAddresses", false)
	}
	if mode == "iptables" && (c.IPTables.LocalhostNodePorts == nil || *c.IPTables.LocalhostNodePorts) {
		m.add("iptables.localhostNodePorts", "true", "node ports are not served on 127.0.0.1: look for programs on nodes that use them", true)
	}
	if mode == "iptables" && c.IPTables.MasqueradeAll || mode == "nftables" && c.NFTables.MasqueradeAll {
		m.add(mode+".masqueradeAll", "true", "the client's address is hidden only where the answer would not come back to the node", true)
	}
	if c.DetectLocalMode != "" && c.DetectLocalMode != "ClusterCIDR" && c.DetectLocalMode != "NodeCIDR" {
		m.add("detectLocalMode", c.DetectLocalMode, "addresses in the podCIDRs of Nodes are pods", true)
	}
	health := cmp.Or(c.HealthzBind, "0.0.0.0:10256")
	if at, err := netip.ParseAddrPort(health); err == nil && at.Addr().IsLoopback() {
		m.add("healthzBindAddress", health, "healthAddress", false)
	} else {
		m.add("healthzBindAddress", health, "not answered: load balancers of clouds ask it; then set healthAddress to it (/healthz, and /metrics too)", true)
	}
	m.add("conntrack", "sysctls", "kept until the next reboot: then set net.netfilter.nf_conntrack_max and the timeouts yourself", false)
	m.add("clientConnection, metrics", "", "the agents' own", false)
}
