package migrate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
)

// movedLabel is the label of nodes on which kube-proxy runs no more.
const movedLabel = "felixlike.io/services"

// proxyMove says how the nodes of a cluster move from kube-proxy to the agents and back.
type proxyMove struct {
	// Settings are those of kube-proxy that need a decision.
	Settings []proxySetting `json:"settings"`
	// Config are the agents' settings.
	Config proxyConfig `json:"config"`
	Steps  []step      `json:"steps"`
	// Back are the steps back.
	Back []step `json:"back"`
}

// proxyConfig are settings of the agents (docs/INSTALL.md).
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

// step is one step with its commands, in which NODE stands for a node.
type step struct {
	Do       string   `json:"do"`
	Commands []string `json:"commands,omitempty"`
}

// proxyFields are what is read of kube-proxy's configuration (kubeproxy.config.k8s.io/v1alpha1).
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
	} `json:"ipvs"`
}

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
			m, err := p.move()
			if err != nil {
				return err
			}
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
	return p, nil
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

func (p proxyInput) move() (*proxyMove, error) {
	m := &proxyMove{Config: proxyConfig{ServiceProxy: "full"}}
	u, err := url.Parse(p.server)
	switch {
	case err != nil || u.Host == "":
		m.Config.APIServer = []string{"API-SERVER:6443"}
		m.add("kubeconfig.conf server", cmp.Or(p.server, "none"), "write the addresses of the API servers in place of API-SERVER", true)
	default:
		m.Config.APIServer = []string{u.Host}
		m.add("kubeconfig.conf server", p.server, "apiServer", false)
		if _, err := netip.ParseAddr(u.Hostname()); err != nil {
			m.add("kubeconfig.conf server", u.Hostname(), "a name: a resolver that is a Service cannot resolve it before the agent serves Services; write addresses", true)
		}
	}
	p.settings(m)
	p.steps(m)
	return m, nil
}

func (m *proxyMove) add(field, value, here string, lost bool) {
	m.Settings = append(m.Settings, proxySetting{Field: field, Value: value, Here: here, Lost: lost})
}

// settings compares the settings of kube-proxy with what the agents do.
func (p proxyInput) settings(m *proxyMove) {
	c := p.config
	mode := cmp.Or(c.Mode, "iptables")
	m.add("mode", mode, "nftables, with one map of all endpoints", false)
	if c.IPVS.Scheduler != "" && c.IPVS.Scheduler != "rr" && mode == "ipvs" {
		m.add("ipvs.scheduler", c.IPVS.Scheduler, "endpoints are drawn at random", true)
	}
	switch {
	case slices.Contains(c.NodePortAddresses, "primary"):
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
	m.add("healthzBindAddress", cmp.Or(c.HealthzBind, "0.0.0.0:10256"), "if a load balancer checks this port, set healthAddress to it (/healthz, and /metrics too)", false)
	m.add("conntrack", "sysctls", "kept until the next reboot: then set net.netfilter.nf_conntrack_max and the timeouts yourself", false)
	m.add("clientConnection, metrics", "", "the agents' own", false)
}

// steps writes the steps for the nodes. While both serve a node, either translates a connection, once.
func (p proxyInput) steps(m *proxyMove) {
	ns, name, pod := p.daemons.Namespace, p.daemons.Name, p.daemons.Spec.Template.Spec.Containers[0]
	selector := strings.Join(labelsOf(p.daemons), ",")
	program := "kube-proxy"
	if len(pod.Command) > 0 {
		program = pod.Command[0]
	}
	m.Steps = []step{
		{"Look whether the nodes reach the API servers without Services. kube-proxy is still named as missing.", []string{"kubectl felixlike check --service-proxy full --api-server " + strings.Join(m.Config.APIServer, ",")}},
		{"Have kube-proxy leave nodes with a label, which none has yet. Its pods restart, and its rules stay.", []string{
			fmt.Sprintf("kubectl -n %s patch daemonset %s --type=merge -p '%s'", ns, name, p.leaving()), fmt.Sprintf("kubectl -n %s rollout status daemonset %s", ns, name),
		}},
		{"Give the agents the settings above: edit the ConfigMap felixlike-config (with the chart: helm upgrade), and restart them. The first node is not ready, since both serve Services there, so the others wait.", []string{
			"kubectl -n felixlike-system edit configmap felixlike-config", "kubectl -n felixlike-system rollout restart daemonset felixlike",
		}},
		{"For each NODE whose agent is not ready: end kube-proxy there and remove its rules. The next node follows by itself.", []string{
			"kubectl -n felixlike-system get pods -o wide",
			"kubectl label node NODE " + movedLabel + "=felixlike",
			fmt.Sprintf("kubectl -n %s wait --for=delete pod -l %s --field-selector spec.nodeName=NODE --timeout=2m", ns, selector),
			cleanup(ns, pod.Image, program),
			"kubectl felixlike --node NODE status --wait 1m",
		}},
		{"After the last node: look at the traffic, then delete kube-proxy. Keep its manifest. With kubeadm, skip the phase addon/kube-proxy in upgrades.", []string{
			"kubectl felixlike check --traffic", fmt.Sprintf("kubectl -n %s delete daemonset %s", ns, name),
		}},
	}
	m.Back = []step{
		{"Bring kube-proxy back to all nodes, beside the agents. If it was deleted, apply its manifest first.", []string{
			"kubectl label nodes --all " + movedLabel + "-", fmt.Sprintf("kubectl -n %s rollout status daemonset %s", ns, name),
		}},
		{"Set serviceProxy to off and restart the agents. Each removes its table when it starts.", []string{
			"kubectl -n felixlike-system edit configmap felixlike-config", "kubectl -n felixlike-system rollout restart daemonset felixlike",
			"kubectl -n felixlike-system rollout status daemonset felixlike",
		}},
	}
}

// leaving returns the patch that has kube-proxy leave nodes with movedLabel. The terms of an affinity are alternatives.
func (p proxyInput) leaving() string {
	affinity := p.daemons.Spec.Template.Spec.Affinity.DeepCopy()
	if affinity == nil {
		affinity = &corev1.Affinity{}
	}
	if affinity.NodeAffinity == nil {
		affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	n := affinity.NodeAffinity
	if n.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		n.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 1)}
	}
	terms := n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		terms[i].MatchExpressions = append(terms[i].MatchExpressions, corev1.NodeSelectorRequirement{Key: movedLabel, Operator: corev1.NodeSelectorOpDoesNotExist})
	}
	text, _ := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"affinity": affinity}}}})
	return string(text)
}

func labelsOf(d *appsv1.DaemonSet) (all []string) {
	if d.Spec.Selector != nil {
		for key, value := range d.Spec.Selector.MatchLabels {
			all = append(all, key+"="+value)
		}
	}
	slices.Sort(all)
	return all
}

// cleanup returns the command that removes kube-proxy's rules from NODE by its own program.
func cleanup(ns, image, program string) string {
	pod := map[string]any{"apiVersion": "v1", "spec": map[string]any{
		"nodeName": "NODE", "hostNetwork": true, "tolerations": []any{map[string]any{"operator": "Exists"}},
		"containers": []any{map[string]any{
			"name": "cleanup", "image": image, "command": []string{program, "--cleanup"}, "securityContext": map[string]any{"privileged": true},
		}},
	}}
	text, _ := json.Marshal(pod)
	return fmt.Sprintf("kubectl -n %s run kube-proxy-cleanup --image=%s --restart=Never --rm --attach --overrides='%s'", ns, image, text)
}

func (m *proxyMove) print(w io.Writer) error {
	table := terminal.NewTable(terminal.StyleFor(w), "KUBE-PROXY", "VALUE", "HERE", "LOST")
	for _, s := range m.Settings {
		lost := "nothing"
		if s.Lost {
			lost = "yes"
		}
		table.Row(s.Field, s.Value, s.Here, lost)
	}
	config, err := yaml.Marshal(map[string]any{"config": m.Config})
	if err != nil {
		return err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\nSettings of the agents:\n\n%s", table, indented(string(config)))
	for _, part := range []struct {
		title string
		steps []step
	}{{"Steps", m.Steps}, {"Way back", m.Back}} {
		fmt.Fprintf(&out, "\n%s:\n", part.title)
		for i, s := range part.steps {
			fmt.Fprintf(&out, "\n%d. %s\n\n%s", i+1, s.Do, indented(strings.Join(s.Commands, "\n")))
		}
	}
	_, err = io.WriteString(w, out.String())
	return err
}

func indented(text string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		out.WriteString("    " + line)
	}
	return out.String()
}
