package preview

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/internal/terminal"
)

// shown bounds the names in a list; the list gives the number of the others.
const shown = 3

// Print prints a preview for people; explained, in sentences.
func Print(w io.Writer, p *Preview, explained bool) error {
	t := &text{style: terminal.StyleFor(w)}
	if explained {
		t.explain(p)
	} else {
		t.policies(p)
		t.verdicts(p)
	}
	t.stillDenied(p)
	t.ofNodes(p)
	t.services(p)
	t.sockets(p)
	t.outlived(p)
	_, err := io.WriteString(w, t.String())
	return err
}

type text struct {
	strings.Builder
	style terminal.Style
}

func (t *text) policies(p *Preview) {
	for _, c := range p.Policies {
		fmt.Fprintf(t, "%s: %s; %s\n", t.style.Bold(c.Policy), c.What, c.scope())
		t.problems(c)
	}
}

func (t *text) problems(c PolicyChange) {
	for _, text := range c.Problems {
		fmt.Fprintf(t, "  note: %s\n", text)
	}
}

// scope returns the directions of a policy.
func (c *PolicyChange) scope() string {
	var directions []string
	if c.Ingress {
		directions = append(directions, "ingress")
	}
	if c.Egress {
		directions = append(directions, "egress")
	}
	if len(directions) == 0 {
		if !c.isPolicy() {
			return "policies may refer to it"
		}
		if c.Kind != networkPolicy {
			return "it has no rules"
		}
		return "it isolates nothing"
	}
	if len(c.Nodes) > 0 {
		return fmt.Sprintf("%s of %s", strings.Join(directions, " and "), Count(len(c.Nodes), "node"))
	}
	return fmt.Sprintf("%s of %s", strings.Join(directions, " and "), Count(len(c.Pods), "pod"))
}

// Count names a number of things.
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func (t *text) verdicts(p *Preview) {
	fmt.Fprintf(t, "\n%s\n", t.style.Head("Packets with another verdict"))
	if len(p.Verdicts) == 0 {
		if !p.Changes() {
			t.WriteString("none: every packet keeps its verdict\n")
			return
		}
		t.WriteString("none: every packet of a pod keeps its verdict there\n")
		return
	}
	families := p.families()
	table := terminal.NewTable(t.style, "FROM", "TO", "PORTS", "NOW", "THEN", "BECAUSE")
	for _, d := range Grouped(p.Verdicts) {
		now, then := t.style.Bad(Denied), t.style.Good(Allowed)
		if d.Becomes == Denied {
			now, then = t.style.Good(Allowed), t.style.Bad(Denied)
		}
		table.Row(list(d.From), list(d.To), d.portsText(families), now, then, d.Because)
	}
	fmt.Fprintln(t, table)
}

// stillDenied warns of the commonest mistake: a packet needs the policies of both ends.
func (t *text) stillDenied(p *Preview) {
	if len(p.StillDenied) == 0 {
		return
	}
	fmt.Fprintf(t, "\n%s\n", t.style.Head("Still denied, though the new rules allow it at one end"))
	families := p.families()
	table := terminal.NewTable(t.style, "FROM", "TO", "PORTS", "BECAUSE")
	for _, d := range Grouped(p.StillDenied) {
		table.Row(list(d.From), list(d.To), d.portsText(families), d.Because)
	}
	fmt.Fprintln(t, table)
}

// families returns the families of all differences.
func (p *Preview) families() []string {
	var all []string
	for _, d := range slices.Concat(p.Verdicts, p.StillDenied, p.OfNodes) {
		for _, f := range d.Families {
			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	return all
}

// portsText also names the families if the difference does not hold for all of them.
func (d *Difference) portsText(families []string) string {
	ports := strings.Join(d.Ports, " ")
	if len(d.Families) < len(families) {
		return ports + " (" + strings.Join(d.Families, " ") + ")"
	}
	return ports
}

// Grouped joins the differences that differ only in the source of the packets, and
// then those that differ only in the destination.
func Grouped(all []Difference) []Difference {
	alike := func(a, b Difference) bool {
		return a.Becomes == b.Becomes && a.Because == b.Because && slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Families, b.Families)
	}
	all = joined(all, func(a, b Difference) bool { return alike(a, b) && slices.Equal(a.To, b.To) },
		func(a *Difference, b Difference) { a.From = union(a.From, b.From) })
	return joined(all, func(a, b Difference) bool { return alike(a, b) && slices.Equal(a.From, b.From) },
		func(a *Difference, b Difference) { a.To = union(a.To, b.To) })
}

func joined[T any](all []T, alike func(a, b T) bool, join func(*T, T)) []T {
	var out []T
	for _, d := range all {
		if at := slices.IndexFunc(out, func(o T) bool { return alike(o, d) }); at >= 0 {
			join(&out[at], d)
		} else {
			out = append(out, d)
		}
	}
	return out
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// list names the first of many.
func list(names []string) string {
	if len(names) > shown+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}

func (t *text) outlived(p *Preview) {
	if !p.Looked {
		return
	}
	fmt.Fprintf(t, "\n%s\n", t.style.Head("Established connections of "+p.Node))
	if len(p.Outlived) == 0 {
		t.WriteString("none that the new policies deny\n")
		return
	}
	fmt.Fprintf(t, "the new policies deny %s; an established connection continues until it ends:\n", Count(len(p.Outlived), "connection"))
	table := terminal.NewTable(t.style, "FROM", "TO", "CONNECTION", "BECAUSE")
	for i, k := range p.Outlived {
		if i == 10*shown {
			break
		}
		table.Row(k.From, k.To, k.String(), k.Because)
	}
	fmt.Fprintln(t, table)
	if more := len(p.Outlived) - 10*shown; more > 0 {
		fmt.Fprintf(t, "and %d more (-o json has all)\n", more)
	}
}

// ofNodes prints what the policies of nodes decide otherwise.
func (t *text) ofNodes(p *Preview) {
	if len(p.OfNodes) == 0 {
		return
	}
	fmt.Fprintf(t, "\n%s\n", t.style.Head("Packets to and from nodes themselves, by the policies of the node"))
	families := p.families()
	table := terminal.NewTable(t.style, "FROM", "TO", "PORTS", "NOW", "THEN", "BECAUSE")
	for _, d := range Grouped(p.OfNodes) {
		now, then := t.style.Good(Allowed), t.style.Bad(d.Becomes)
		if d.Becomes == Allowed {
			now, then = t.style.Bad(Denied), t.style.Good(Allowed)
		}
		table.Row(list(d.From), list(d.To), d.portsText(families), now, then, d.Because)
	}
	fmt.Fprintln(t, table)
}

// services prints the addresses of Services that policies before DNAT close or open.
func (t *text) services(p *Preview) {
	if len(p.Services) == 0 && !p.NoServices {
		return
	}
	fmt.Fprintf(t, "\n%s\n", t.style.Head("Addresses of Services, by the policies before DNAT where packets arrive"))
	if p.NoServices {
		t.WriteString("not judged: no Services are known. Give them:\n  kubectl get services -A -o yaml | felixctl preview --services - -f FILE\n")
		return
	}
	table := terminal.NewTable(t.style, "FROM", "SERVICE", "ADDRESS", "AT", "NOW", "THEN", "BECAUSE")
	for _, s := range p.Services {
		now, then := t.style.Good(Allowed), t.style.Bad(s.Becomes)
		if s.Becomes == Allowed {
			now, then = t.style.Bad(Denied), t.style.Good(Allowed)
		}
		table.Row(list(s.From), s.Service, s.text(), list(s.Nodes), now, then, s.Because)
	}
	fmt.Fprintln(t, table)
	t.WriteString("what passes is judged again by the policies of the endpoint\n")
}

// sockets prints the sockets of this node that the change concerns.
func (t *text) sockets(p *Preview) {
	if len(p.OfNodes) == 0 {
		return
	}
	fmt.Fprintf(t, "\n%s\n", t.style.Head("Sockets of "+p.Node+" that close, and connections that could not begin again"))
	if len(p.Sockets) == 0 {
		t.WriteString("none\n")
		return
	}
	table := terminal.NewTable(t.style, "PROCESS", "SOCKET", "PEER", "THEN", "BECAUSE")
	for _, s := range p.Sockets {
		socket := fmt.Sprintf("%s %s", s.Protocol, s.Local)
		if !s.Peer.IsValid() {
			socket += " listens"
		}
		table.Row(s.Owner(), socket, list(s.Peers), t.style.Bad(s.Becomes), s.Because)
	}
	fmt.Fprintln(t, table)
	t.WriteString("established connections continue until they end\n")
}
