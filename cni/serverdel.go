package cni

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/model"
)

// Del detaches a sandbox. It needs neither the pod's namespace, nor this node's object, nor a
// working driver: a deletion must not wait for them.
func (s *Server) Del(ctx context.Context, r *protocol.SandboxRequest) (protocol.Empty, error) {
	who := owner{r.Sandbox.ContainerID, r.Sandbox.Interface}
	if who.sandbox == "" || who.iface == "" {
		return protocol.Empty{}, fmt.Errorf("%w: no container id or no interface", errSandbox)
	}
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	pod := podOf(r.Sandbox)
	if pod.Namespace == "" || pod.Name == "" {
		all, err := s.attachments(ctx)
		if err != nil {
			return protocol.Empty{}, err
		}
		at := slices.IndexFunc(all, func(a model.Attachment) bool { return ownerOf(a) == who })
		if at < 0 {
			return protocol.Empty{}, s.ipam.del(ctx, who.sandbox, who.iface)
		}
		pod = all[at].Pod
	}
	defer s.pods.lock(pod.String())()
	return protocol.Empty{}, s.remove(ctx, Spec{Pod: pod, Owner: who.sandbox, Interface: who.iface})
}

func ownerOf(a model.Attachment) owner { return owner{a.Sandbox, a.PodInterface} }

// attachments returns the pods' interfaces that this server has attached. It logs
// unreadable parts of a record: the rest is enough to remove it.
func (s *Server) attachments(ctx context.Context) ([]model.Attachment, error) {
	all, err := s.db.Attachments(ctx)
	if err != nil && all == nil {
		return nil, err
	}
	if err != nil {
		s.opts.Log.Warn("a record of an attachment cannot be read", "error", err)
	}
	return slices.DeleteFunc(all, func(a model.Attachment) bool { return a.Sandbox == "" || a.PodInterface == "" }), nil
}

// GC removes all attachments but those that are listed. It goes on after errors, and returns all.
func (s *Server) GC(ctx context.Context, r *protocol.GCRequest) (protocol.Empty, error) {
	// The plugin sends an empty list if no attachment is valid.
	if r.Valid == nil {
		return protocol.Empty{}, fmt.Errorf("%w: no list of valid attachments", errSandbox)
	}
	valid := map[owner]bool{}
	for _, a := range r.Valid {
		valid[owner{a.ContainerID, a.Interface}] = true
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	var errs []error
	all, err := s.attachments(ctx)
	if err != nil {
		return protocol.Empty{}, err
	}
	for _, a := range all {
		if !valid[ownerOf(a)] {
			s.opts.Log.Info("removing a pod's interface that the runtime does not know", "pod", a.Pod.String(), "sandbox", a.Sandbox)
			errs = append(errs, s.remove(ctx, Spec{Pod: a.Pod, Owner: a.Sandbox, Interface: a.PodInterface}))
		}
	}
	links, err := ownedLinks()
	errs = append(errs, err)
	for _, l := range links {
		if !valid[l.owner] {
			errs = append(errs, removeVeth(l.name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		// Release no address that a pod may still have.
		return protocol.Empty{}, fmt.Errorf("remove leftovers: %w", err)
	}
	return protocol.Empty{}, s.releaseAllBut(ctx, valid)
}

// releaseAllBut releases the reservations of all other sandboxes, and those that name no
// sandbox. Nothing else may run.
func (s *Server) releaseAllBut(ctx context.Context, keep map[owner]bool) error {
	reserved, err := s.ipam.reservations()
	errs := []error{err, s.ipam.dropEmpty(reserved)}
	done := map[owner]bool{}
	for _, r := range reserved {
		if who := (owner{r.sandbox, r.iface}); r.sandbox != "" && !keep[who] && !done[who] {
			done[who] = true
			errs = append(errs, s.ipam.del(ctx, who.sandbox, who.iface))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("release addresses: %w", err)
	}
	if len(done) > 0 {
		s.opts.Log.Info("released the addresses of sandboxes that are gone", "sandboxes", len(done))
	}
	return nil
}

// tidy removes leftovers that no DEL would remove: ports without an interface (the
// node was restarted), and reservations of sandboxes that have neither port nor
// interface (an agent was killed while it added them). The veth pair of a killed agent
// goes with the sandbox's namespace; until then its address stays reserved.
// Nothing else may run yet.
func (s *Server) tidy(ctx context.Context) {
	if err := s.tidyAll(ctx); err != nil {
		s.opts.Log.Warn("leftovers of an earlier agent could not be removed", "error", err)
	}
}

func (s *Server) tidyAll(ctx context.Context) error {
	all, err := s.attachments(ctx)
	if err != nil {
		return err
	}
	links, err := ownedLinks()
	if err != nil {
		return err
	}
	keep := map[owner]bool{}
	names := map[string]bool{}
	for _, l := range links {
		keep[l.owner], names[l.name] = true, true
	}
	for _, a := range all {
		if names[a.Interface] {
			keep[ownerOf(a)] = true
			continue
		}
		s.opts.Log.Info("removing a port without an interface", "pod", a.Pod.String(), "interface", a.Interface)
		if err := s.db.DetachPort(ctx, a.Interface, a.Pod); err != nil {
			return err
		}
	}
	return s.releaseAllBut(ctx, keep)
}
