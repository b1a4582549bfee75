package kernel

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/test/tablestest"
)

// dialed connects to a fresh namespace for the table "felixlike".
func dialed(t testing.TB) (tablestest.Namespace, *Conn) {
	t.Helper()
	ns := tablestest.NewNamespace(t, "nft")
	c, err := Dial(Options{NetNS: ns.FD, Table: "felixlike", Seed: maphash.MakeSeed()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return ns, c
}

// The connection's sequence numbers may wrap around: echoes and acknowledgements are
// still recognised.
func TestSequenceWrapsAround(t *testing.T) {
	_, c := dialed(t)
	c.sequence = ^uint32(0) - 3
	accept := tables.Rule{Action: tables.Accept{}}
	for range 4 {
		var echo Rule
		if err := c.Commit([]Op{
			{Kind: AddTable}, {Kind: AddChain, Name: "another"}, {Kind: AddRule, Name: "another", Rule: &accept, Hash: "h", Echo: &echo},
		}); err != nil {
			t.Fatal(err)
		}
		if echo.Handle == 0 || echo.Digest == 0 {
			t.Errorf("no echo: %+v", echo)
		}
		if err := c.Commit([]Op{{Kind: DeleteTable}}); err != nil {
			t.Fatal(err)
		}
	}
}

// A check changes nothing, not even the generation, with and without a refusal. The connection can be used afterwards.
func TestCheckChangesNothing(t *testing.T) {
	_, c := dialed(t)
	before, err := c.Generation()
	if err != nil {
		t.Fatal(err)
	}
	masquerade := tables.Rule{Action: tables.Masquerade{}}
	jump := tables.Rule{Action: tables.Jump{Chain: "none"}}
	ops := []Op{
		{Kind: AddTable},
		{Kind: AddChain, Name: "some"},
		{Kind: AddChain, Name: "some-nat", Hook: &tables.Hook{Type: tables.HookNAT, Point: tables.HookPostrouting}},
		{Kind: AddRule, Name: "some", Rule: &masquerade},
		{Kind: AddRule, Name: "some", Rule: &jump},
	}
	for n := range ops {
		if err := c.Check(ops[:n+1]); err != nil {
			t.Errorf("%d operations: %v", n+1, err)
		}
	}
	after, err := c.Generation()
	if err != nil || after != before {
		t.Errorf("generation %d after the checks, %d before them: %v", after, before, err)
	}
	if state, err := c.ReadTable("felixlike"); err != nil || state.Exists {
		t.Errorf("there is a table after the checks: %+v, %v", state, err)
	}
	if err := c.Commit(ops[:2]); err != nil {
		t.Error(err)
	}
}

// The barrier changes nothing, not even the generation.
func TestBarrier(t *testing.T) {
	_, c := dialed(t)
	before, err := c.Generation()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.barrier(); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := c.Generation(); err != nil || after != before {
		t.Errorf("generation %d, then %d: %v", before, after, err)
	}
	if err := c.Commit([]Op{{Kind: AddTable}}); err != nil {
		t.Error(err)
	}
}

// Without the right to change the ruleset, the whole batch is refused. Answers to other
// batches do not count, and neither does a missing acknowledgement.
func TestAnswersOfTheWholeBatch(t *testing.T) {
	a := answer{ops: make([]Op, 3), first: 10}
	for _, m := range []struct {
		sequence uint32
		code     int32
	}{{9, -1}, {10, -int32(unix.EPERM)}, {13, 0}, {15, -1}} {
		var message expression.Message
		message.Begin(unix.NLMSG_ERROR, 0, m.sequence, 0, 0)
		binary.NativeEndian.PutUint32(message.B[unix.NLMSG_HDRLEN:], uint32(m.code))
		message.End()
		if err := a.note(message.B); err != nil {
			t.Fatal(err)
		}
	}
	err := a.outcome("felixlike")
	var refused *RefusedError
	if !errors.As(err, &refused) || len(refused.Objects) != 0 || !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "commit: ") {
		t.Errorf("error %v", err)
	}
	a = answer{ops: make([]Op, 3), first: 10}
	if err := a.outcome("felixlike"); !errors.Is(err, errUnknownOutcome) {
		t.Errorf("without an acknowledgement: %v", err)
	}
}

// wantedSet wants one set with some elements.
type wantedSet struct {
	name     string
	elements int
}

func (wantedSet) HashesOf([]byte) []string { return nil }

func (w wantedSet) ElementsOf(set string) (int, bool) { return w.elements, set == w.name }

// The elements of a set that is not wanted are not read; of a wanted one not many more
// than are wanted.
func TestHugeSetsAreNotRead(t *testing.T) {
	const huge = 120_000
	_, c := dialed(t)
	set := Op{Kind: AddSet, Name: "nhuge-4", Shape: Shape{Kind: model.Networks, Family: model.IPv4}}
	ops := []Op{{Kind: AddTable}, set}
	set.Kind = AddMembers
	address := netip.MustParseAddr("11.0.0.0")
	for n := 0; n < huge; n += MembersPerMessage {
		set.Changes = nil
		for range min(MembersPerMessage, huge-n) {
			set.Changes = append(set.Changes, Change{Member: model.AddressMember(address)})
			address = address.Next().Next()
		}
		ops = append(ops, set)
	}
	if err := c.Commit(ops); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		wanted string
		most   int
	}{{"another", 0}, {"nhuge-4", 2 * spareElements}} {
		c.Wanted = wantedSet{test.wanted, 3}
		state, err := c.Read("felixlike")
		if err != nil {
			t.Fatal(err)
		}
		if s := state.Sets["nhuge-4"]; s == nil || s.Regular || len(s.Members) > 0 {
			t.Errorf("%s is wanted: the set was read as %v", test.wanted, s != nil)
		}
		if n := cap(c.elements); n > test.most {
			t.Errorf("%s is wanted: some %d elements were read", test.wanted, n)
		}
	}
	c.Wanted = wantedSet{"nhuge-4", 2*huge + 1}
	if state, err := c.Read("felixlike"); err != nil || len(state.Sets["nhuge-4"].Members) != huge || state.Sets["nhuge-4"].Shape.Kind != model.Networks {
		t.Errorf("the wanted set is not read: %v", err)
	}
}
