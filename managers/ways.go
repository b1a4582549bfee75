package managers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// ways decides how packets travel between this node and its peers.
type ways struct {
	mode    model.TrafficMode
	subnets []netip.Prefix
	// keys are the public keys of the nodes, and holders the names of the nodes that have one. They are kept in the
	// mode WireGuard only.
	keys    map[string]model.PublicKey
	holders map[model.PublicKey][]string
}

// newWays returns ways without nodes.
func newWays(mode model.TrafficMode) ways {
	return ways{mode: mode, keys: map[string]model.PublicKey{}, holders: map[model.PublicKey][]string{}}
}

// update takes a HostAddressesUpdate and updates of nodes. It reports whether the ways to nodes may have changed that the
// update does not name.
func (w *ways) update(u model.Update) bool {
	switch u := u.(type) {
	case model.HostAddressesUpdate:
		if w.mode == model.Encap || w.mode == model.WireGuard || slices.Equal(u.Subnets, w.subnets) {
			return false
		}
		w.subnets = slices.Clone(u.Subnets)
		return true
	case model.NodeUpdate:
		return w.setKey(u.Node.Name, u.Node.PublicKey)
	case model.NodeRemove:
		return w.setKey(u.Name, model.PublicKey{})
	}
	return false
}

// setKey notes the key of a node, and reports whether another node has, or had, the same key.
func (w *ways) setKey(name string, key model.PublicKey) bool {
	before := w.keys[name]
	if w.mode != model.WireGuard || before == key {
		return false
	}
	shared := false
	if !before.IsZero() {
		left := slices.DeleteFunc(w.holders[before], func(n string) bool { return n == name })
		if w.holders[before] = left; len(left) == 0 {
			delete(w.holders, before)
		}
		shared = len(left) > 0
	}
	if w.keys[name] = key; key.IsZero() {
		delete(w.keys, name)
		return shared
	}
	w.holders[key] = append(w.holders[key], name)
	slices.Sort(w.holders[key])
	return shared || len(w.holders[key]) > 1
}

// of returns the families in which packets to a peer travel in one of the ways.
func (w *ways) of(self, peer *model.Node, accepted ...model.Way) []model.Family {
	var all []model.Family
	for _, f := range model.Families() {
		if slices.Contains(accepted, w.way(self, peer, f)) {
			all = append(all, f)
		}
	}
	return all
}

// way is that of the mode. A key that several nodes have proves nothing, so none of them is a peer.
func (w *ways) way(self, peer *model.Node, f model.Family) model.Way {
	way := w.mode.Way(self, peer, w.subnets, f)
	if way == model.ByWireGuard && len(w.holders[peer.PublicKey]) > 1 {
		return model.NoWay
	}
	return way
}

// unreached returns the problems of a peer whose pods have no way in some family.
func (w *ways) unreached(self, peer *model.Node) []model.Problem {
	if w.mode == model.WireGuard {
		return w.unencrypted(peer)
	}
	var all []model.Problem
	for _, f := range w.of(self, peer, model.NoWay) {
		if self.PodCIDR(f).IsValid() && peer.PodCIDR(f).IsValid() {
			all = append(all, model.Problem{
				Object: model.ObjectRef{Kind: "Node", Name: peer.Name}, Field: "status.addresses",
				Reason: fmt.Sprintf("trafficMode %s: pods of this node do not reach its pods by IPv%s, because it or this node has no IPv%[2]s address", w.mode, f),
			})
		}
	}
	return all
}

// unencrypted returns the problem of a peer that nothing is encrypted to because of its key. Those of the
// node's own key and of addresses are reported elsewhere.
func (w *ways) unencrypted(peer *model.Node) []model.Problem {
	reason := ""
	switch holders := w.holders[peer.PublicKey]; {
	case peer.PublicKey.IsZero():
		reason = "the node has no public key of WireGuard, so no packets travel between it and the pods of this node: start its agent with encryption wireguard, or write its key into its manifest"
	case len(holders) > 1:
		reason = fmt.Sprintf("nodes %s have one public key, so no packets travel between them and the pods of this node: each node needs a key of its own", strings.Join(holders, ", "))
	default:
		return nil
	}
	return []model.Problem{keyProblem(peer.Name, reason)}
}

func keyProblem(node, reason string) model.Problem {
	return model.Problem{Object: model.ObjectRef{Kind: "Node", Name: node}, Field: "metadata.annotations[" + model.PublicKeyAnnotation + "]", Reason: reason}
}
