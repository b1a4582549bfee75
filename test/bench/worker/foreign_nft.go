package worker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	nft "github.com/google/nftables"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// foreignNFT changes the agent's table over a separate netlink socket, as nft
// would, but without the start of a program.
func foreignNFT(w workload.Workload, r *rules.Renderer, _ Switch) []Foreign {
	f := newNFTWriter(w, r, func(s *nft.Set) bool { return !s.IsMap && !s.Interval && strings.HasSuffix(s.Name, "-4") })
	return []Foreign{
		{Case: ForeignRule, Change: f.deleteRule},
		{Case: ForeignChain, Change: f.flushChain},
		{Case: ForeignElement, Change: f.deleteMember},
		{Case: ForeignDispatch, Change: f.deleteDispatch},
		{Case: ForeignAll, Once: true, Change: f.deleteTable},
	}
}

// foreignMaps is foreignNFT for the layout maps, where policies have no chains. Members are grants.
func foreignMaps(w workload.Workload, r *rules.Renderer, _ Switch) []Foreign {
	f := newNFTWriter(w, r, func(s *nft.Set) bool { return s.Name == rules.GrantsSet })
	return []Foreign{
		{Case: ForeignElement, Change: f.deleteMember},
		{Case: ForeignDispatch, Change: f.deleteDispatch},
		{Case: ForeignAll, Once: true, Change: f.deleteTable},
	}
}

// nftWriter is another program that writes nftables.
type nftWriter struct {
	conn     *nft.Conn
	table    *nft.Table
	workload workload.Workload
	renderer *rules.Renderer
	// ofMembers chooses the sets that members are deleted from; sets are those, once they were asked for.
	ofMembers func(*nft.Set) bool
	sets      []*nft.Set
	// members are those of sets that have been read: there can be 100,000 grants.
	members map[string][]nft.SetElement
}

func newNFTWriter(w workload.Workload, r *rules.Renderer, ofMembers func(*nft.Set) bool) *nftWriter {
	return &nftWriter{
		conn: &nft.Conn{}, table: &nft.Table{Name: nftables.DefaultTable, Family: nft.TableFamilyINet},
		workload: w, renderer: r, ofMembers: ofMembers, members: map[string][]nft.SetElement{},
	}
}

// flush sends the prepared changes.
func (f *nftWriter) flush() (time.Time, error) {
	before := time.Now()
	return before, f.conn.Flush()
}

func (f *nftWriter) chain(i int) *nft.Chain {
	_, p := f.workload.ChangedPolicy(i)
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: p.Namespace, Name: p.Name}
	return &nft.Chain{Table: f.table, Name: f.renderer.PolicyChain(id, model.Ingress)}
}

func (f *nftWriter) deleteRule(i int) (time.Time, error) {
	chain := f.chain(i)
	held, err := f.conn.GetRules(f.table, chain)
	if err != nil {
		return time.Time{}, fmt.Errorf("rules of chain %s: %w", chain.Name, err)
	}
	if len(held) == 0 {
		return time.Time{}, fmt.Errorf("chain %s has no rules", chain.Name)
	}
	if err := f.conn.DelRule(held[len(held)/2]); err != nil {
		return time.Time{}, err
	}
	return f.flush()
}

func (f *nftWriter) flushChain(i int) (time.Time, error) {
	f.conn.FlushChain(f.chain(i))
	return f.flush()
}

func (f *nftWriter) deleteMember(i int) (time.Time, error) {
	if f.sets == nil {
		sets, err := f.conn.GetSets(f.table)
		if err != nil {
			return time.Time{}, fmt.Errorf("sets: %w", err)
		}
		f.sets = slices.DeleteFunc(sets, func(s *nft.Set) bool { return !f.ofMembers(s) })
		slices.SortFunc(f.sets, func(a, b *nft.Set) int { return cmp.Compare(a.Name, b.Name) })
	}
	if len(f.sets) == 0 {
		return time.Time{}, fmt.Errorf("table %s has no sets of members", f.table.Name)
	}
	set := f.sets[i%len(f.sets)]
	held := f.members[set.Name]
	if held == nil {
		var err error
		if held, err = f.conn.GetSetElements(set); err != nil {
			return time.Time{}, fmt.Errorf("members of set %s: %w", set.Name, err)
		}
		f.members[set.Name] = held
	}
	if len(held) == 0 {
		return time.Time{}, fmt.Errorf("set %s has no members", set.Name)
	}
	at := i % len(held)
	if err := f.conn.SetDeleteElements(set, held[at:at+1]); err != nil {
		return time.Time{}, err
	}
	return f.flush()
}

func (f *nftWriter) deleteDispatch(i int) (time.Time, error) {
	attached := f.workload.Attachments()
	address := attached[i%len(attached)].Addresses[0]
	verdicts := &nft.Set{
		Table: f.table, Name: rules.DispatchMap(model.Ingress, model.IPv4), IsMap: true,
		KeyType: nft.TypeIPAddr, DataType: nft.TypeVerdict,
	}
	if err := f.conn.SetDeleteElements(verdicts, []nft.SetElement{{Key: address.AsSlice()}}); err != nil {
		return time.Time{}, err
	}
	return f.flush()
}

func (f *nftWriter) deleteTable(int) (time.Time, error) {
	f.conn.DelTable(f.table)
	return f.flush()
}
