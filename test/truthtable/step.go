package truthtable

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// Step is one line of a truth table: the whole desired state of a cluster at
// one step of a case, and its probes.
type Step struct {
	Suite string `json:"suite"`
	Case  string `json:"case"`
	// Step counts from 1 to Steps within the case.
	Step  int      `json:"step"`
	Steps int      `json:"steps"`
	Title string   `json:"title,omitempty"`
	Tags  []string `json:"tags,omitempty"`
	// Actions describe the changes since the step before.
	Actions    []string                     `json:"actions,omitempty"`
	Nodes      []Node                       `json:"nodes"`
	Namespaces []Namespace                  `json:"namespaces"`
	Pods       []Pod                        `json:"pods"`
	Policies   []networkingv1.NetworkPolicy `json:"policies"`
	// ClusterPolicies are missing in tables without tiers.
	ClusterPolicies []v1alpha2.ClusterNetworkPolicy `json:"clusterPolicies,omitempty"`
	// Antrea are objects of Antrea's API, missing in tables without them.
	Antrea antrea.Objects `json:"antrea,omitzero"`
	Probes []Probe        `json:"probes"`
}

// Node is a node of the cluster.
type Node struct {
	Name    string            `json:"name"`
	IP      netip.Addr        `json:"ip"`
	PodCIDR netip.Prefix      `json:"podCIDR"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// Namespace is a namespace of the cluster.
type Namespace struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Pod is a pod of the cluster. It serves exactly the Ports it declares.
type Pod struct {
	Namespace string            `json:"ns"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	IP        netip.Addr        `json:"ip"`
	Node      string            `json:"node"`
	Ports     []Port            `json:"ports,omitempty"`
}

// Port is a container port.
type Port struct {
	Name     string `json:"name,omitempty"`
	Port     uint16 `json:"port"`
	Protocol string `json:"proto"`
}

// Probe is a connection attempt, or a datagram and its answer.
type Probe struct {
	// From and To are "namespace/pod", "node:NAME" or "ip:ADDRESS".
	From     string `json:"from"`
	To       string `json:"to"`
	Protocol string `json:"proto"`
	Port     uint16 `json:"port"`
	// PortName is the container port's name that Port was resolved from.
	PortName string `json:"portName,omitempty"`
	// Self marks probes of a pod to itself.
	Self bool `json:"self,omitempty"`
	// Expect is true if the probe gets through; nil if the file does
	// not say.
	Expect *bool `json:"expect,omitempty"`
}

// String returns "suite/case/step", as tests name it.
func (s *Step) String() string { return fmt.Sprintf("%s/%s/%d", s.Suite, s.Case, s.Step) }

// Read reads a truth table. Lines with contradictory parts are errors;
// unknown fields are remarks.
func Read(r io.Reader) ([]Step, error) {
	var steps []Step
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read truth table line %d: %w", n, err)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			s, perr := parse(line)
			if perr != nil {
				return nil, fmt.Errorf("parse truth table line %d: %w", n, perr)
			}
			steps = append(steps, s)
		}
		if err != nil {
			return steps, nil
		}
	}
}

// ReadFile reads the truth table in a file.
func ReadFile(path string) ([]Step, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open truth table: %w", err)
	}
	defer f.Close()
	steps, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return steps, nil
}

func parse(line []byte) (Step, error) {
	var s Step
	d := json.NewDecoder(bytes.NewReader(line))
	if err := d.Decode(&s); err != nil {
		return Step{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Step{}, errors.New("more than one object on the line")
	}
	if err := errors.Join(s.check(), checkPolicies(line)); err != nil {
		return Step{}, fmt.Errorf("%s: %w", s.String(), err)
	}
	return s, nil
}

// checkPolicies refuses policies of another kind than that of their list, and fields that it does not have: they would be left out, and an empty
// NetworkPolicy would be judged in the place of a ClusterNetworkPolicy.
func checkPolicies(line []byte) error {
	var lists struct {
		Policies        []json.RawMessage `json:"policies"`
		ClusterPolicies []json.RawMessage `json:"clusterPolicies"`
	}
	if err := json.Unmarshal(line, &lists); err != nil {
		return err
	}
	check := func(list, want string, all []json.RawMessage, object func() any) error {
		for i, raw := range all {
			var of metav1.TypeMeta
			if err := json.Unmarshal(raw, &of); err != nil {
				return fmt.Errorf("%s[%d]: %w", list, i, err)
			}
			if of.Kind != "" && of.Kind != want {
				return fmt.Errorf("%s[%d] is a %s, want a %s", list, i, of.Kind, want)
			}
			d := json.NewDecoder(bytes.NewReader(raw))
			d.DisallowUnknownFields()
			if err := d.Decode(object()); err != nil {
				return fmt.Errorf("%s[%d]: %w", list, i, err)
			}
		}
		return nil
	}
	return errors.Join(
		check("policies", "NetworkPolicy", lists.Policies, func() any { return new(networkingv1.NetworkPolicy) }),
		check("clusterPolicies", "ClusterNetworkPolicy", lists.ClusterPolicies, func() any { return new(v1alpha2.ClusterNetworkPolicy) }),
	)
}

// check reports the first contradiction within the step.
func (s *Step) check() error {
	if s.Suite == "" || s.Case == "" || s.Step < 1 || s.Step > s.Steps {
		return fmt.Errorf("not a step of a case: step %d of %d", s.Step, s.Steps)
	}
	nodes := map[string]bool{}
	for _, n := range s.Nodes {
		if n.Name == "" || !n.IP.IsValid() || !n.PodCIDR.IsValid() {
			return fmt.Errorf("node %q needs name, ip and podCIDR", n.Name)
		}
		nodes[n.Name] = true
	}
	namespaces := map[string]bool{}
	for _, n := range s.Namespaces {
		namespaces[n.Name] = true
	}
	for _, p := range s.Pods {
		if !namespaces[p.Namespace] || !nodes[p.Node] || !p.IP.IsValid() {
			return fmt.Errorf("pod %s/%s needs a known namespace, a known node and an ip", p.Namespace, p.Name)
		}
		for _, port := range p.Ports {
			if _, err := model.ParseProtocol(port.Protocol); err != nil {
				return fmt.Errorf("pod %s/%s port %d: %w", p.Namespace, p.Name, port.Port, err)
			}
		}
	}
	for i, p := range s.Probes {
		if err := s.checkProbe(p); err != nil {
			return fmt.Errorf("probes[%d]: %w", i, err)
		}
	}
	return nil
}

func (s *Step) checkProbe(p Probe) error {
	if _, err := model.ParseProtocol(p.Protocol); err != nil {
		return err
	}
	for _, end := range []string{p.From, p.To} {
		if _, err := s.Address(end, model.IPv4); err != nil {
			return err
		}
	}
	return nil
}

// Address resolves the end of a probe ("namespace/pod", "node:NAME" or
// "ip:ADDRESS") to its address in a family. Addresses that are IPv6 already
// stay as they are.
func (s *Step) Address(end string, f model.Family) (netip.Addr, error) {
	if name, ok := strings.CutPrefix(end, "node:"); ok {
		for _, n := range s.Nodes {
			if n.Name == name {
				return MapAddr(n.IP, f), nil
			}
		}
		return netip.Addr{}, fmt.Errorf("no node %q", name)
	}
	if address, ok := strings.CutPrefix(end, "ip:"); ok {
		a, err := netip.ParseAddr(address)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("probe end %q: %w", end, err)
		}
		return MapAddr(a, f), nil
	}
	for _, p := range s.Pods {
		if p.Namespace+"/"+p.Name == end {
			return MapAddr(p.IP, f), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no pod %q", end)
}
