package node

import (
	"fmt"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/model"
)

// noticeUnreachable says that no tunnel can reach a node.
const noticeUnreachable = "PeerUnreachable"

// Peers returns the module that names the peer nodes that no tunnel can reach.
func Peers(v *driver.View) driver.Module {
	return driver.Module{ObjectProblems: func() (all []datastore.Notice) {
		nodes := v.Model().Nodes
		self := nodes[v.Node()]
		if self == nil {
			return nil
		}
		for name, n := range nodes {
			if name == v.Node() || self.OuterOf(n).IsValid() {
				continue
			}
			reason := "no InternalIP, which the tunnel needs: its pods cannot be reached"
			if its := n.Outer(); its.IsValid() {
				reason = fmt.Sprintf("there is no tunnel to %s, which is of another family than this node's end: its pods cannot be reached. The end of a node is its IPv4 InternalIP, or the IPv6 one if it has no other", its)
			}
			all = append(all, datastore.Notice{
				Problem: model.Problem{Object: model.NodeRef(name), Field: "status.addresses", Reason: reason}, Kind: noticeUnreachable, Known: datastore.KnownToSome,
			})
		}
		return all
	}}
}
