package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// read lists our sets in the kernel. Their elements are read later, when a set is
// compared.
func (s *Sets) read(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	clear(s.observed)
	clear(s.obsolete)
	if err := s.list("", func(l listing) {
		if l.head != nil && strings.HasPrefix(l.name, ipsets.KernelPrefix) {
			s.observed[l.name] = *l.head
		}
	}); err != nil {
		return err
	}
	desired := s.desiredNames()
	for name := range s.observed {
		if desired[name] == nil {
			s.obsolete[name] = &isolate.Retry{}
		}
	}
	for name, t := range s.sets {
		if !t.desired {
			delete(s.sets, name)
			continue
		}
		t.unread = true
		s.dirty[name] = true
	}
	s.known = true
	return nil
}

// readElements reads the elements of the kernel's set and describes foreign changes.
func (s *Sets) readElements(t *set) (string, error) {
	name := ipsets.KernelName(t.spec.Name)
	found := map[element]struct{}{}
	var head *observedSet
	odd := 0
	visit := func(l listing) {
		if l.head != nil {
			head = l.head
		}
		if head == nil || head.kind != t.spec.Kind || head.family != t.spec.Family {
			return
		}
		for _, data := range nfnetlink.Attributes(l.elements) {
			if e, ok := parseElement(head.kind, data); ok {
				found[e] = struct{}{}
			} else {
				odd++
			}
		}
	}
	if _, ok := s.observed[name]; ok {
		if err := s.list(name, visit); err != nil {
			return "", err
		}
	}
	if head == nil {
		delete(s.observed, name)
	} else {
		head.plain = head.plain && odd == 0
		s.observed[name] = *head
	}
	foreign, missing := t.rebase(found)
	if !t.trusted {
		return "", nil
	}
	t.trusted = false
	return difference(t.spec, head, foreign, missing), nil
}

// difference describes a foreign change of a set.
func difference(spec ipsets.Set, head *observedSet, foreign, missing int) string {
	d := tables.Drift{Part: "member", Parts: "members", Missing: missing, Foreign: foreign}
	switch {
	case head == nil:
		return "the set was missing"
	case head.kind != spec.Kind || head.family != spec.Family:
		return "the set was of another type"
	case !head.plain:
		d.Words = []string{"other options"}
	}
	return d.String()
}

// listing is one message of a dump: of a set, its head in the first one, and
// some of its elements.
type listing struct {
	name     string
	head     *observedSet
	elements []byte
}

// list calls visit with the kernel's listing of a set of ours, or without a name of all
// sets, without elements. A missing set is no error.
func (s *Sets) list(name string, visit func(listing)) error {
	var m nfnetlink.Messages
	writeList(&m, name)
	code, err := s.conn.Dump(&m, func(attributes []byte) { visit(parseListing(attributes)) })
	switch {
	case err != nil:
		return err
	case code != 0 && (code != unix.ENOENT || name == ""):
		return fmt.Errorf("list the kernel's ip sets: %w", errorOf(code))
	}
	return nil
}

func parseListing(attributes []byte) listing {
	var l listing
	var typeName string
	var family, revision byte
	var options []byte
	for attr, value := range nfnetlink.Attributes(attributes) {
		switch attr {
		case attrSetName:
			l.name = text(value)
		case attrTypeName:
			typeName = text(value)
		case attrFamily:
			if len(value) == 1 {
				family = value[0]
			}
		case attrRevision:
			if len(value) == 1 {
				revision = value[0]
			}
		case attrData:
			options = value
		case attrADT:
			l.elements = value
		}
	}
	if typeName != "" {
		h := parseOptions(options)
		h.kind, h.family = shapeOf(typeName, family)
		h.plain = h.plain && (h.kind != model.Networks || revision >= revisionNetworks)
		l.head = &h
	}
	return l
}

// parseOptions reads the options of a set. Timeouts, masks of the address or the mark
// (netmask, bitmask, mark mask) and flags (counters, comments) make a set behave
// differently. Our sets have none of them.
func parseOptions(options []byte) observedSet {
	h := observedSet{plain: true}
	for attr, value := range nfnetlink.Attributes(options) {
		switch attr {
		case attrMaxElem:
			if len(value) == 4 {
				h.capacity = int(binary.BigEndian.Uint32(value))
			}
		case attrTimeout, attrSetFlags, attrMarkMask, attrBitmask, attrNetmask:
			h.plain = false
		}
	}
	return h
}

func shapeOf(name string, family byte) (model.GroupKind, model.Family) {
	for _, k := range []model.GroupKind{model.Addresses, model.Networks, model.AddressPorts} {
		for _, f := range model.Families() {
			if typeName(k) == name && protocolFamily(f) == family {
				return k, f
			}
		}
	}
	return 0, 0
}

func text(value []byte) string {
	s, _, _ := bytes.Cut(value, []byte{0})
	return string(s)
}
