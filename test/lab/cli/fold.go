package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// mostRows is the most ends that a matrix prints each for itself without --all.
const mostRows = 12

// classesOf names for each pod its class: pods that no policy distinguishes.
func classesOf(s *lab.State) map[string]string {
	w := preview.NewWorld(control.Objects{
		Nodes: s.Nodes, Namespaces: s.Namespaces, Pods: s.Pods, Policies: s.Policies, ClusterPolicies: s.ClusterPolicies, Antrea: s.Antrea,
	}, model.Failsafe{}, nil)
	w.Divide(nil)
	of := map[string]string{}
	for _, e := range w.Ends(w.Pods()) {
		for _, p := range e.Pods() {
			of[p.Namespace+"/"+p.Name] = e.String()
		}
	}
	return of
}

// PrintClasses writes the matrix with a row and a column for each class of pods. A cell shows what all probes between two classes have in common, and
// what went wrong if one did; a pod's probe to itself is left out if its class has another.
func (m *Matrix) PrintClasses(w io.Writer, of map[string]string) error {
	s := terminal.StyleFor(w)
	var names []string
	pods := map[string]int{}
	class := func(end string) string {
		if name, is := of[end]; is {
			return name
		}
		return end
	}
	for _, end := range m.From {
		if pods[class(end)]++; pods[class(end)] == 1 {
			names = append(names, class(end))
		}
	}
	type key struct {
		from, to string
		port     int
	}
	symbols := map[key]string{}
	worst := []string{s.Bad("?"), s.Bad("x"), s.Bad("!")} // what is through and should be denied hides the others
	for i, c := range m.Cells {
		k := key{class(c.Probe.From), class(c.Probe.To), i % len(m.Ports)}
		if c.Probe.From == c.Probe.To && pods[k.from] > 1 && c.Right() {
			continue
		}
		now, known := symbols[k]
		switch one := c.symbol(s); {
		case !known || slices.Index(worst, one) > slices.Index(worst, now):
			symbols[k] = one
		case now != one && !slices.Contains(worst, now):
			symbols[k] = "~"
		}
	}
	first, column := 0, max(len(m.Ports), len(fmt.Sprint(len(names))))
	for _, name := range names {
		first = max(first, len(name))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", s.Faint(m.caption()+"; pods that no policy distinguishes share a row (--all: each pod)"))
	fmt.Fprintf(&b, "%*s", first+4, "")
	for i := range names {
		fmt.Fprintf(&b, " %s", s.Bold(fmt.Sprintf("%-*d", column, i+1)))
	}
	b.WriteByte('\n')
	for i, from := range names {
		fmt.Fprintf(&b, "%3d %s", i+1, s.Bold(fmt.Sprintf("%-*s", first, from)))
		for _, to := range names {
			b.WriteByte(' ')
			for port := range m.Ports {
				if symbol, is := symbols[key{from, to, port}]; is {
					b.WriteString(symbol)
				} else {
					b.WriteByte(' ')
				}
			}
			b.WriteString(strings.Repeat(" ", column-len(m.Ports)))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, trimLines(b.String())+s.Faint(legend+"  ~ differs between pods")+"\n")
	return err
}
