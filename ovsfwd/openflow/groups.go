package openflow

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"antrea.io/libOpenflow/openflow15"

	"github.com/felixlike/felixlike/tables"
)

// hashGroups holds the HashGroups that desired flows use, by number.
type hashGroups map[uint32]*usedGroup

// usedGroup is a HashGroup with the number of flow groups that use it.
type usedGroup struct {
	HashGroup
	users int
	// right is set while the switch is known to have the group as it is here.
	right bool
}

// use counts a new user of all groups in the flows, and returns their numbers.
func (h hashGroups) use(flows []Flow) (ids []uint32) {
	for _, f := range flows {
		for _, g := range groupsOf(f) {
			if slices.Contains(ids, g.ID) {
				continue
			}
			ids = append(ids, g.ID)
			if h[g.ID] == nil {
				h[g.ID] = &usedGroup{HashGroup: g}
			}
			h[g.ID].users++
		}
	}
	return ids
}

// leave undoes use.
func (h hashGroups) leave(ids []uint32) {
	for _, id := range ids {
		if h[id].users--; h[id].users == 0 {
			delete(h, id)
		}
	}
}

// right reports whether the switch is known to have a group.
func (h hashGroups) right(id uint32) bool { return h[id] != nil && h[id].right }

// doubt has groups sent again that the switch may have lost, and reports whether there are any.
func (h hashGroups) doubt(ids []uint32) (doubted bool) {
	for _, id := range ids {
		if h.right(id) {
			h[id].right, doubted = false, true
		}
	}
	return doubted
}

// sent records that the switch has taken groups, and returns their number.
func (h hashGroups) sent(ids map[uint32]bool) int {
	for id := range ids {
		if g := h[id]; g != nil {
			g.right = true
		}
	}
	return len(ids)
}

// lacksGroup reports whether the switch refused a flow because it does not have the flow's group.
func lacksGroup(err error) bool {
	refused := new(BundleError)
	return errors.As(err, &refused) && slices.ContainsFunc(refused.Refusals, func(r Refusal) bool { return r.Reason == badOutGroup })
}

// wrong returns the groups to send, by number.
func (h hashGroups) wrong() (all []HashGroup) {
	for _, id := range slices.Sorted(maps.Keys(h)) {
		if !h[id].right {
			all = append(all, h[id].HashGroup)
		}
	}
	return all
}

// reread compares the groups with those of the switch. It returns how those differ that were right. A group that cannot be encoded is refused when it is sent.
func (h hashGroups) reread(installed map[uint32][]byte) map[string]tables.Drift {
	found := map[string]tables.Drift{}
	for id, g := range h {
		want, err := g.desc()
		got, there := installed[id]
		was := g.right
		g.right = err == nil && there && bytes.Equal(got, want)
		if !was || g.right {
			continue
		}
		d := tables.Drift{Part: "group", Parts: "groups"}
		if there {
			d.Changed++
		} else {
			d.Missing++
		}
		found[fmt.Sprintf("group=%d", id)] = d
	}
	return found
}

// sendGroups sends groups that differ although all flows that use them are right.
func sendGroups(ctx context.Context, t *FlowTable, result *Result) error {
	wrong := t.hashes.wrong()
	if len(wrong) == 0 {
		return nil
	}
	if err := t.unlocked(func() error { return t.sw.Bundle(ctx, ensure(wrong)) }); err != nil {
		t.synced, t.trusted = false, false
		return err
	}
	t.alive = time.Now()
	for _, g := range wrong {
		t.hashes[g.ID].right = true
	}
	result.Groups += len(wrong)
	return nil
}

func ensure(groups []HashGroup) iter.Seq2[FlowMod, error] {
	return func(yield func(FlowMod, error) bool) {
		for _, g := range groups {
			if !yield(FlowMod{Command: EnsureGroup, Group: g}, nil) {
				return
			}
		}
	}
}

// groupDescFixed is the size of an entry of a group description without buckets and properties (OpenFlow 1.5.1, 7.3.5.11).
const groupDescFixed = 16

// desc returns the group as Conn.Groups does: its type, then its buckets and properties.
func (g HashGroup) desc() ([]byte, error) {
	m, err := g.wire(nil, 0, EnsureGroup)
	if err != nil {
		return nil, err
	}
	return append([]byte{openflow15.GT_SELECT}, m[groupModFixed:]...), nil
}

// Groups reads all groups of the bridge by number: the type, then buckets and properties in wire form.
func (c *Conn) Groups(ctx context.Context) (map[uint32][]byte, error) {
	all := map[uint32][]byte{}
	body := append(binary.BigEndian.AppendUint32(nil, openflow15.OFPG_ALL), 0, 0, 0, 0)
	err := c.multipart(ctx, openflow15.MultipartType_GroupDesc, body, func(b []byte) error {
		for len(b) > 0 {
			if len(b) < groupDescFixed {
				return errors.New("entry too short")
			}
			size := int(binary.BigEndian.Uint16(b))
			if size < groupDescFixed || size > len(b) {
				return fmt.Errorf("entry of impossible length %d", size)
			}
			all[binary.BigEndian.Uint32(b[4:])] = append([]byte{b[2]}, b[groupDescFixed:size]...)
			b = b[size:]
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("openflow groups: %w", err)
	}
	return all, nil
}
