package policy

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/tenancy"
	"github.com/felixlike/felixlike/model"
)

// project is a class of namespaces whose packets to the outside have addresses of their own (NetNamespace.egressIPs). Each address is
// placed as an Egress is; the pods are shared out over the addresses that a node has.
type project struct {
	compiled tenancy.Egress
	// addresses are Egresses of all pods of the class, one for each address.
	addresses []*egress
	// conflicts are as of the last flush.
	conflicts []model.Problem
}

// projectStore has the projects.
type projectStore struct {
	on      bool
	classes *tenancy.Classes
	hosts   tenancy.HostSubnets
	// all are in the order of tenancy.Classes.Egresses; stale is set if they may have changed.
	all   []*project
	stale bool
}

const fieldProject = "egressIPs"

// setHost creates or replaces the HostSubnet of a node, or removes it if it is nil.
func (x *egressStore) setHost(name string, object *antrea.HostSubnet) {
	if object == nil {
		delete(x.projects.hosts, name)
	} else {
		x.projects.hosts[name] = object
	}
	x.projects.stale = true
}

// resolveProjects makes the projects that NetNamespaces and HostSubnets say. One that says what it said stays as it is.
func (x *egressStore) resolveProjects() {
	s := &x.projects
	if !s.stale {
		return
	}
	s.stale = false
	gone := map[string]*project{}
	for _, p := range s.all {
		gone[p.compiled.Object.Name] = p
	}
	s.all = nil
	if s.on {
		for _, compiled := range s.classes.Egresses(s.hosts) {
			name := compiled.Object.Name
			p := gone[name]
			if p != nil && reflect.DeepEqual(p.compiled, compiled) {
				delete(gone, name)
			} else {
				p = x.newProject(compiled)
				x.dirty.egresses, x.nodes.stale = true, true
			}
			if p != nil {
				s.all = append(s.all, p)
			}
		}
	}
	for _, p := range gone {
		x.dirty.egresses, x.nodes.stale = true, true
		for _, e := range p.addresses {
			x.unselect(e)
		}
	}
}

func (x *egressStore) newProject(compiled tenancy.Egress) *project {
	p := &project{compiled: compiled}
	namespaces, errs := label.Compile(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: compiled.Namespaces},
	}}, "")
	if len(errs) > 0 {
		return nil // no namespace has such a name
	}
	for _, a := range compiled.Addresses {
		e := &egress{id: compiled.Object.ID(), project: true, stale: true}
		e.compiled = compile.Egress{Pods: compile.Selection{Namespaces: namespaces, Pods: label.Everything()}, Node: a.Node, Among: a.Among}
		if e.refused = a.Refused; e.refused == "" {
			e.compiled.Address = a.Address
		}
		x.selectPods(e)
		p.addresses = append(p.addresses, e)
	}
	return p
}

// share gives each pod one address of its family that a node has: always the same one while a node has it, so that of an address that
// goes or comes only its own pods change. Without such an address, packets of the pods to the outside are dropped.
func (p *project) share(placed map[*egress]*model.EgressAddress) []model.EgressAddress {
	all := make([]model.EgressAddress, len(p.addresses))
	for i, e := range p.addresses {
		all[i] = *placed[e]
		all[i].Pods = nil
	}
	for _, pod := range p.addresses[0].members {
		best := -1
		for i := range all {
			if p.wants(i, model.FamilyOf(pod)) && (best < 0 || before(pod, &all[i], &all[best])) {
				best = i
			}
		}
		if best >= 0 {
			all[best].Pods = append(all[best].Pods, pod)
		}
	}
	return all
}

// wants reports whether an address is for pods of a family: for both if it is not understood.
func (p *project) wants(address int, f model.Family) bool {
	a := p.compiled.Addresses[address].Address
	return !a.IsValid() || model.FamilyOf(a) == f
}

// before reports whether a pod has the address a rather than b: one that a node has, else one that a node may get.
func before(pod netip.Addr, a, b *model.EgressAddress) bool {
	if held := a.Node != ""; held != (b.Node != "") {
		return held
	}
	if a.Address.IsValid() != b.Address.IsValid() {
		return a.Address.IsValid()
	}
	return mixed(Order(pod.String(), a.Address.String())) < mixed(Order(pod.String(), b.Address.String()))
}

// mixed has each bit of the result depend on each bit of x (the finalizer of MurmurHash3). Without it, neighbouring addresses
// would have hashes that differ in their last bits alone, and one of them most pods.
func mixed(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// conflictsOf returns why nodes do not have addresses of the project, with what that means for its pods.
func (p *project) conflictsOf(placed map[*egress]*model.EgressAddress) []model.Problem {
	held := func(f model.Family) bool {
		return slices.ContainsFunc(p.addresses, func(e *egress) bool { return placed[e].Node != "" && placed[e].Covers(f) })
	}
	var all []model.Problem
	for i, e := range p.addresses {
		var dropped []string
		for _, f := range model.Families() {
			if p.wants(i, f) && !held(f) {
				dropped = append(dropped, "IPv"+f.String())
			}
		}
		effect := "; no pod has this address"
		if len(dropped) > 0 {
			effect = "; " + strings.Join(dropped, " and ") + " packets of all pods of " + tenancy.Listed(p.compiled.Namespaces) + " to the outside of the cluster are dropped"
		}
		for _, c := range e.conflicts {
			c.Field, c.Reason = fieldProject, c.Reason+effect
			all = append(all, c)
		}
	}
	return all
}
