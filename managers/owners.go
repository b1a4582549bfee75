package managers

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// owners knows which pod an address belongs to. While two attached pods claim
// one address (it was reused, and the first pod's interface is still to be
// removed) the newest claim counts: a late removal must not hurt the new
// owner, and an update of the old one does not make it the newest again.
type owners struct {
	attachments map[model.PodID]*model.Attachment
	// claims lists the pods of an address, the newest last.
	claims map[netip.Addr][]model.PodID
}

// ownerChange is a change of the owner of an address; nil is no owner.
type ownerChange struct {
	addr          netip.Addr
	before, after *model.Attachment
}

func newOwners() *owners {
	return &owners{attachments: map[model.PodID]*model.Attachment{}, claims: map[netip.Addr][]model.PodID{}}
}

// attachment returns the newest interface of a pod, or nil.
func (o *owners) attachment(id model.PodID) *model.Attachment { return o.attachments[id] }

// owner returns the attachment that an address belongs to, or nil.
func (o *owners) owner(a netip.Addr) *model.Attachment {
	if claims := o.claims[a]; len(claims) > 0 {
		return o.attachments[claims[len(claims)-1]]
	}
	return nil
}

// update takes an update of an attachment and returns, in order of address,
// which addresses have another pod, sandbox, interface or MAC address now.
func (o *owners) update(u model.Update) []ownerChange {
	switch u := u.(type) {
	case model.AttachmentUpdate:
		return o.replace(u.Attachment.Pod, u.Attachment)
	case model.AttachmentRemove:
		// A pod's new interface may be there before its old one goes.
		if a := o.attachments[u.Pod]; a != nil && a.Interface == u.Interface {
			return o.replace(u.Pod, nil)
		}
	}
	return nil
}

func (o *owners) replace(id model.PodID, now *model.Attachment) []ownerChange {
	var had, has []netip.Addr
	if old := o.attachments[id]; old != nil {
		had = old.Addresses
	}
	if now != nil {
		has = now.Addresses
	}
	touched := slices.Concat(had, has)
	slices.SortFunc(touched, netip.Addr.Compare)
	touched = slices.Compact(touched)
	changes := make([]ownerChange, len(touched))
	for i, a := range touched {
		changes[i] = ownerChange{addr: a, before: o.owner(a)}
	}
	if now != nil {
		o.attachments[id] = now
	} else {
		delete(o.attachments, id)
	}
	for _, a := range touched {
		o.claim(a, id, slices.Contains(has, a))
	}
	for i := range changes {
		changes[i].after = o.owner(changes[i].addr)
	}
	return slices.DeleteFunc(changes, func(c ownerChange) bool { return sameOwner(c.before, c.after) })
}

// claim records whether a pod claims an address.
func (o *owners) claim(a netip.Addr, id model.PodID, has bool) {
	claims := o.claims[a]
	switch {
	case has && !slices.Contains(claims, id):
		o.claims[a] = append(claims, id)
	case !has:
		claims = slices.DeleteFunc(claims, func(c model.PodID) bool { return c == id })
		o.claims[a] = claims
		if len(claims) == 0 {
			delete(o.claims, a)
		}
	}
}

func sameOwner(a, b *model.Attachment) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Pod == b.Pod && a.Sandbox == b.Sandbox && a.Interface == b.Interface && bytes.Equal(a.MAC, b.MAC)
}
