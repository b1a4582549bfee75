package migrate

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/internal/terminal"
)

const (
	// movedLabel is the label of nodes on which kube-proxy runs no more.
	movedLabel = "felixlike.io/services"
	// proxyName is the name of kube-proxy's program and of its container.
	proxyName = "kube-proxy"
	ipvsMode  = "ipvs"

	ofAgents = "kubectl -n felixlike-system "
	// deleteAgent leaves Open vSwitch of the node.
	deleteAgent = ofAgents + "delete pod -l app.kubernetes.io/name=felixlike,app.kubernetes.io/component=agent --field-selector spec.nodeName=NODE"
	editConfig  = ofAgents + "edit configmap felixlike-config"
	nodeStatus  = "kubectl felixlike --node NODE status"
	drain       = "kubectl drain NODE --ignore-daemonsets"
	uncordon    = "kubectl uncordon NODE"
)

// updates returns the command that sets how the agents' DaemonSet replaces pods.
func updates(kind string) string {
	return ofAgents + `patch daemonset felixlike --type=merge -p '{"spec":{"updateStrategy":{"type":"` + kind + `"}}}'`
}

// step is one step with its commands, in which NODE stands for a node.
type step struct {
	Do       string   `json:"do"`
	Commands []string `json:"commands,omitempty"`
}

// steps writes the steps for the nodes. While both serve a node, either translates a connection, once.
func (p proxyInput) steps(m *proxyMove) {
	of := "kubectl -n " + p.daemons.Namespace + " "
	pods := "pod -l " + shellQuote(metav1.FormatLabelSelector(p.daemons.Spec.Selector)) + " --field-selector spec.nodeName=NODE"
	restart := step{
		"Look whether all agents are ready: those that are not are replaced at once. Give them the settings above: edit agent.yaml in the ConfigMap felixlike-config, and restart them. The chart has the settings under config, and restarts them by itself. The first node is not ready, since both serve Services there, so the others wait.",
		[]string{"kubectl felixlike status", editConfig, ofAgents + "rollout restart daemonset felixlike"},
	}
	leave := step{
		"For each NODE whose agent is not ready: end kube-proxy there and remove its rules at once: until then they decide, and lead to endpoints that are gone. The next node follows by itself.",
		[]string{
			ofAgents + "get pods -o wide",
			"kubectl label node NODE " + movedLabel + "=felixlike",
			of + "wait --for=delete " + pods + " --timeout=2m",
			p.cleanup(),
			nodeStatus + " --wait 1m",
		},
	}
	if p.config.mode() == ipvsMode {
		restart.Do = "Give the agents the settings above: edit agent.yaml in the ConfigMap felixlike-config. The chart has them under config. Agents are not ready beside IPVS, so a restart of the DaemonSet would replace all at once: with OnDelete, each waits until you delete it."
		restart.Commands = []string{updates("OnDelete"), editConfig}
		leave.Do = "For each NODE: drain it, since connections through Services end. Replace its agent, and go on when its status says that kube-proxy serves Services as well. Then end kube-proxy there and remove its rules at once."
		leave.Commands = slices.Concat([]string{drain, deleteAgent, nodeStatus}, leave.Commands[1:], []string{uncordon})
	}
	m.Steps = []step{
		{"For each NODE: look whether it reaches the API servers without Services. kube-proxy is still named as missing.", []string{"kubectl felixlike --node NODE check --service-proxy full --api-server " + shellQuote(strings.Join(m.Config.APIServer, ","))}},
		{"Have kube-proxy leave nodes with a label, which none has yet. Its pods restart, and its rules stay. kubeadm upgrade writes the DaemonSet back, and kube-proxy returns to all nodes: do not upgrade before the end.", []string{
			of + "patch daemonset " + p.daemons.Name + " --type=merge -p " + shellQuote(p.leaving()), of + "rollout status daemonset " + p.daemons.Name,
		}},
		restart,
		leave,
		{"After the last node: look at the traffic, then keep kube-proxy's manifest as it is now, and delete it. With kubeadm, skip the phase addon/kube-proxy in upgrades.", []string{
			"kubectl felixlike check --traffic",
			of + "get daemonset " + p.daemons.Name + " -o yaml | sed '/^  resourceVersion:/d' > kube-proxy-moved.yaml",
			of + "delete daemonset " + p.daemons.Name,
		}},
	}
	if p.config.mode() == ipvsMode {
		last := &m.Steps[len(m.Steps)-1]
		last.Commands = append(last.Commands, updates("RollingUpdate"))
	}
	p.back(m, of, pods)
}

// back writes the steps back. One node at a time has no agent that is ready: such an agent answers 503 to load balancers.
func (p proxyInput) back(m *proxyMove, of, pods string) {
	node := step{
		"bring kube-proxy back beside the agent. Go on when the agent's status says that kube-proxy serves Services as well, with what it has for IPv4 and IPv6: that can take resyncInterval (90 s). A good healthz alone is not enough: it is good while kube-proxy starts, and if healthAddress is at its port, the agent answers. " +
			"Then replace the agent: it removes its table when it starts. Then replace kube-proxy's pod: the new one opens healthCheckNodePorts, which the agent had before. Take the next node when ",
		[]string{
			"kubectl label node NODE " + movedLabel + "-",
			nodeStatus,
			"kubectl get --raw /api/v1/nodes/NODE:10256/proxy/healthz",
			deleteAgent,
			of + "delete " + pods,
		},
	}
	if p.config.mode() == ipvsMode {
		node.Do = "For each NODE: drain it, and " + node.Do + "the status names nothing but IPVS."
		node.Commands = slices.Concat([]string{drain}, node.Commands, []string{nodeStatus, uncordon})
	} else {
		node.Do = "For each NODE: " + node.Do + "all are ready."
		node.Commands = append(node.Commands, "kubectl felixlike status --wait 2m")
	}
	m.Back = []step{
		{"Set serviceProxy to off in the ConfigMap (with the chart: helm upgrade). With OnDelete the agents keep what they have until you delete them. An agent that restarts by itself serves no Services any more: take its node first. If kube-proxy was deleted, create it from the kept manifest (kubectl create -f kube-proxy-moved.yaml): nodes with the label do not get it yet.", []string{updates("OnDelete"), editConfig}},
		node,
		{"After the last node: have the DaemonSet replace pods by itself again.", []string{updates("RollingUpdate")}},
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
	absent := corev1.NodeSelectorRequirement{Key: movedLabel, Operator: corev1.NodeSelectorOpDoesNotExist}
	n := affinity.NodeAffinity
	if n.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		n.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{absent}}}}
	} else {
		terms := n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		for i := range terms {
			if len(terms[i].MatchExpressions)+len(terms[i].MatchFields) > 0 { // an empty term matches no node
				terms[i].MatchExpressions = append(terms[i].MatchExpressions, absent)
			}
		}
	}
	text, _ := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"affinity": affinity}}}})
	return string(text)
}

// container returns kube-proxy's container, and its program.
func (p proxyInput) container() (c corev1.Container, program string) {
	all := p.daemons.Spec.Template.Spec.Containers
	c = all[max(0, slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == proxyName }))]
	for _, text := range slices.Concat(c.Command, c.Args) {
		for _, word := range strings.Fields(text) { // a script for a shell has several
			if path.Base(word) == proxyName {
				return c, word
			}
		}
	}
	return c, proxyName
}

// cleanup returns the command that removes kube-proxy's rules from NODE by its own program, with the files of the node that it has.
func (p proxyInput) cleanup() string {
	c, program := p.container()
	var volumes []corev1.Volume
	var mounts []corev1.VolumeMount
	for _, v := range p.daemons.Spec.Template.Spec.Volumes {
		of := slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool { return m.Name != v.Name })
		if v.HostPath != nil && len(of) > 0 {
			volumes, mounts = append(volumes, v), append(mounts, of...)
		}
	}
	pod := map[string]any{"apiVersion": "v1", "spec": corev1.PodSpec{
		NodeName: "NODE", HostNetwork: true, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, Volumes: volumes,
		Containers: []corev1.Container{{
			Name: "cleanup", Image: c.Image, Command: []string{program, "--cleanup"}, VolumeMounts: mounts, SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
		}},
	}}
	text, _ := json.Marshal(pod)
	return fmt.Sprintf("kubectl -n %s run kube-proxy-cleanup --image=%s --restart=Never --rm --attach --overrides=%s", p.daemons.Namespace, shellQuote(c.Image), shellQuote(string(text)))
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellQuote returns the word that a shell reads as text.
func shellQuote(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
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
	config, err := yaml.Marshal(m.Config)
	if err != nil {
		return err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\nSettings of the agents, in agent.yaml (with the chart under config):\n\n%s", table, indented(string(config)))
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
