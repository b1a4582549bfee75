package policyflows

import (
	"fmt"
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/ovstest"
)

// evaluator finds what flows do with the first packet of a connection, going by
// what ovs-vswitchd does with conjunctions (conjunction_test.go).
type evaluator struct {
	t     fataler
	flows map[uint8][]ovstest.Flow
}

func newEvaluator(t fataler, r *recorder) *evaluator {
	e := &evaluator{t: t, flows: map[uint8][]ovstest.Flow{}}
	for _, f := range r.parsed(t) {
		e.flows[f.Table] = append(e.flows[f.Table], f)
	}
	for _, flows := range e.flows {
		slices.SortStableFunc(flows, func(a, b ovstest.Flow) int { return int(b.Priority) - int(a.Priority) })
	}
	return e
}

// packet is one as the tables see it; port is that to which it leaves.
type packet struct {
	source, destination netip.Addr
	protocol            model.Protocol
	destinationPort     uint16
	port                uint32
}

func (p packet) String() string {
	return fmt.Sprintf("%s %s -> %s to port %d, leaving by %d", p.protocol, p.source, p.destination, p.destinationPort, p.port)
}

type fields map[string]*big.Int

func (p packet) fields() fields {
	number := func(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }
	ethType := int64(0x800)
	if p.source.Is6() {
		ethType = 0x86dd
	}
	f := fields{
		"dl_type": big.NewInt(ethType), "nw_src": number(p.source), "nw_dst": number(p.destination),
		"nw_proto": big.NewInt(int64(p.protocol)), "reg1": big.NewInt(int64(p.port)), "ct_state": big.NewInt(0x21),
	}
	if p.protocol != model.ICMP && p.protocol != model.ICMPv6 {
		f["tp_dst"] = big.NewInt(int64(p.destinationPort))
	}
	return f
}

func (f fields) matches(flow ovstest.Flow) bool {
	for name, bits := range flow.Match {
		value := f[name]
		if value == nil {
			if name == "tp_dst" {
				return false
			}
			value = new(big.Int)
		}
		if new(big.Int).And(value, bits.Mask).Cmp(bits.Value) != 0 {
			return false
		}
	}
	return true
}

var (
	conjunctionAction = regexp.MustCompile(`^conjunction\((\d+),(\d+)/(\d+)\)$`)
	tableAction       = regexp.MustCompile(`^goto_table:(\d+)$|^ct\(commit,.*table=(\d+)`)
	setAction         = regexp.MustCompile(`^set:(\w+)=(\w+)/(\w+)$`)
)

func isClause(f ovstest.Flow) bool {
	return len(f.Actions) > 0 && strings.HasPrefix(f.Actions[0], "conjunction(")
}

// lookup returns the flows that may decide in a table; nil stands for none.
// More than one are those of conjunctions that are fulfilled at one priority.
func (e *evaluator) lookup(table uint8, f fields) []*ovstest.Flow {
	flows := e.flows[table]
	for len(flows) > 0 {
		n := 1
		for n < len(flows) && flows[n].Priority == flows[0].Priority {
			n++
		}
		var hard *ovstest.Flow
		seen, fulfilled := map[[3]string]bool{}, []string{}
		for i := range flows[:n] {
			switch {
			case !f.matches(flows[i]):
			case !isClause(flows[i]) && hard != nil:
				e.t.Fatalf("which one decides is undefined:\n%s\n%s", flows[i], *hard)
			case !isClause(flows[i]):
				hard = &flows[i]
			default:
				for _, a := range flows[i].Actions {
					m := conjunctionAction.FindStringSubmatch(a)
					seen[[3]string(m[1:])] = true
				}
			}
		}
		if hard != nil {
			return []*ovstest.Flow{hard}
		}
		for part := range seen {
			all := true
			for k := 1; fmt.Sprint(k) <= part[2]; k++ {
				all = all && seen[[3]string{part[0], fmt.Sprint(k), part[2]}]
			}
			if all && !slices.Contains(fulfilled, part[0]) {
				fulfilled = append(fulfilled, part[0])
			}
		}
		if len(fulfilled) > 0 {
			var actions []*ovstest.Flow
			for _, id := range fulfilled {
				actions = append(actions, e.action(table, f, id))
			}
			return actions
		}
		flows = flows[n:]
	}
	return []*ovstest.Flow{nil}
}

// action is the second lookup, of a fulfilled conjunction: clauses do not count.
func (e *evaluator) action(table uint8, f fields, id string) *ovstest.Flow {
	with := fields{}
	for name, value := range f {
		with[name] = value
	}
	with["conj_id"], _ = new(big.Int).SetString(id, 10)
	for i := range e.flows[table] {
		if flow := &e.flows[table][i]; !isClause(*flow) && with.matches(*flow) {
			return flow
		}
	}
	return nil
}

// allows reports whether a packet that begins in a table leaves the metrics
// table of its direction.
func (e *evaluator) allows(table uint8, p packet) bool {
	return e.walk(table, p.fields(), p)
}

func (e *evaluator) walk(table uint8, f fields, p packet) bool {
	next := map[uint8]uint8{45: 50, 50: 60, 60: 61, 61: 70, 85: 90, 90: 100, 100: 101, 101: 105}
	if table == 70 || table == 105 {
		return true
	}
	var verdicts []bool
	for _, flow := range e.lookup(table, f) {
		to, after := next[table], fields{}
		for name, value := range f {
			after[name] = value
		}
		if flow != nil {
			to = e.perform(flow, after)
		}
		verdicts = append(verdicts, to != 0 && e.walk(to, after, p))
	}
	if len(slices.Compact(slices.Clone(verdicts))) != 1 {
		e.t.Fatalf("%s: rules with different actions are fulfilled at one priority of table %d", p, table)
	}
	return verdicts[0]
}

// perform does what a flow does and returns the table that follows, 0 if the
// packet is dropped.
func (e *evaluator) perform(flow *ovstest.Flow, f fields) uint8 {
	to := uint8(0)
	for _, a := range flow.Actions {
		if strings.HasPrefix(a, "note:") {
			continue
		}
		if m := setAction.FindStringSubmatch(a); m != nil {
			value, _ := new(big.Int).SetString(m[2], 0)
			f[m[1]] = value
			continue
		}
		m := tableAction.FindStringSubmatch(a)
		if m == nil {
			e.t.Fatalf("action %q of %s", a, *flow)
		}
		_, _ = fmt.Sscan(m[1]+m[2], &to)
	}
	return to
}
