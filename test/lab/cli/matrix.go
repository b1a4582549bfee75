package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// Port is a port that a matrix asks for.
type Port struct {
	Protocol model.Protocol `json:"protocol"`
	Port     uint16         `json:"port"`
}

// String returns "tcp/80".
func (p Port) String() string { return fmt.Sprintf("%s/%d", p.Protocol, p.Port) }

// ParsePort parses "tcp/80" or "80/tcp".
func ParsePort(text string) (Port, error) {
	var p Port
	name, number, ok := strings.Cut(text, "/")
	if _, err := strconv.Atoi(name); err == nil {
		name, number = number, name
	}
	proto, err := model.ParseProtocol(strings.ToUpper(name))
	if !ok || err != nil {
		return p, fmt.Errorf("port %q: want NUMBER/PROTOCOL or PROTOCOL/NUMBER of tcp, udp or sctp, as in 80/tcp", text)
	}
	p.Protocol = proto
	if n, err := fmt.Sscanf(number, "%d", &p.Port); n != 1 || err != nil || p.Port == 0 || fmt.Sprint(p.Port) != number {
		return p, fmt.Errorf("port %q: want a number from 1 to 65535, as in 80/tcp", text)
	}
	return p, nil
}

// Cell is one probe of a matrix.
type Cell struct {
	lab.Result
	Expected bool `json:"expected"`
	// Served reports whether the target serves the port at all.
	Served bool `json:"served"`
	// Skipped cells are not probed: both ends are outside the cluster.
	Skipped bool `json:"skipped,omitempty"`
}

// Right reports whether the probe went as expected.
func (c Cell) Right() bool { return c.Skipped || c.Tried && c.Through == c.Expected }

// symbol is a cell in one character.
func (c Cell) symbol(s terminal.Style) string {
	switch {
	case c.Skipped:
		return " "
	case !c.Tried:
		return s.Bad("?")
	case !c.Through && !c.Served:
		return s.Faint(".")
	case c.Through && c.Expected:
		return s.Good("+")
	case !c.Through && !c.Expected:
		return s.Faint("-")
	case c.Through:
		return s.Bad("!")
	}
	return s.Bad("x")
}

// Matrix has the results between all ends, on several ports.
type Matrix struct {
	From   []string     `json:"from"`
	To     []string     `json:"to"`
	Ports  []Port       `json:"ports"`
	Family model.Family `json:"family"`
	// Cells are in order of rows, columns, ports.
	Cells []Cell `json:"cells"`
}

// NewMatrix returns a matrix of all pods of a state, and of other ends after
// them, without results. With no ports given it has all that the pods serve.
func NewMatrix(s *lab.State, others []string, ports []Port, family model.Family) (*Matrix, error) {
	m := &Matrix{Ports: ports, Family: family}
	for _, p := range s.Pods {
		m.From = append(m.From, p.Namespace+"/"+p.Name)
	}
	slices.Sort(m.From)
	m.From = append(m.From, others...)
	m.To = m.From
	if len(m.Ports) == 0 {
		m.Ports = servedPorts(s)
	}
	j := newJudge(s)
	for _, from := range m.From {
		for _, to := range m.To {
			for _, port := range m.Ports {
				p := lab.Probe{From: from, To: to, Protocol: port.Protocol, Port: port.Port, Family: family}
				c := Cell{Result: lab.Result{Probe: p}, Skipped: outside(from) && outside(to)}
				var err error
				if c.Expected, c.Served, err = j.expect(p); err != nil {
					return nil, err
				}
				m.Cells = append(m.Cells, c)
			}
		}
	}
	return m, nil
}

func servedPorts(s *lab.State) []Port {
	var ports []Port
	for _, p := range s.Pods {
		for _, c := range p.Spec.Containers {
			for _, cp := range c.Ports {
				proto, err := model.ParseProtocol(cmp.Or(string(cp.Protocol), "TCP"))
				port := Port{Protocol: proto, Port: uint16(cp.ContainerPort)}
				if err == nil && !slices.Contains(ports, port) {
					ports = append(ports, port)
				}
			}
		}
	}
	slices.SortFunc(ports, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return ports
}

// Probes returns the matrix's probes.
func (m *Matrix) Probes() []lab.Probe {
	var probes []lab.Probe
	for _, c := range m.Cells {
		if !c.Skipped {
			probes = append(probes, c.Probe)
		}
	}
	return probes
}

// Fill sets the results of the probes.
func (m *Matrix) Fill(results []lab.Result) {
	for i := range m.Cells {
		if !m.Cells[i].Skipped {
			m.Cells[i].Result, results = results[0], results[1:]
		}
	}
}

// Wrong returns the cells that are not as expected.
func (m *Matrix) Wrong() []Cell {
	var wrong []Cell
	for _, c := range m.Cells {
		if !c.Right() {
			wrong = append(wrong, c)
		}
	}
	return wrong
}

// Counts returns the number of probes that got through, and of all probes.
func (m *Matrix) Counts() (through, probed int) {
	for _, c := range m.Cells {
		if c.Through {
			through++
		}
		if !c.Skipped {
			probed++
		}
	}
	return through, probed
}

// Summary writes in one line how the probes went, and below it those that went
// wrong.
func (m *Matrix) Summary(w io.Writer, took, timeout time.Duration) error {
	s := terminal.StyleFor(w)
	wrong := m.Wrong()
	through, probed := m.Counts()
	verdicts := s.Good("all as expected")
	if len(wrong) > 0 {
		verdicts = s.Bad(plural(len(wrong), "cell") + " wrong")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d probes through, %s (%s, timeout %s)\n", through, probed, verdicts, took.Round(100*time.Millisecond), timeout)
	for i, c := range wrong {
		if i == maxShown {
			fmt.Fprintf(&b, "  ... and %d more\n", len(wrong)-i)
			break
		}
		fmt.Fprintf(&b, "  %s -> %s %s: expected %s, %s\n", c.Probe.From, c.Probe.To,
			Port{Protocol: c.Probe.Protocol, Port: c.Probe.Port}, verdict(c.Expected), c.Reason)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Print writes the matrix: rows are sources, columns targets, and a cell has
// one character a port.
func (m *Matrix) Print(w io.Writer) error {
	s := terminal.StyleFor(w)
	var b strings.Builder
	first := 0
	for _, from := range m.From {
		first = max(first, len(from))
	}
	fmt.Fprintf(&b, "%s\n", s.Faint(m.caption()))
	fmt.Fprintf(&b, "%*s", first, "")
	for _, to := range m.To {
		fmt.Fprintf(&b, "  %s", s.Bold(fmt.Sprintf("%-*s", m.width(to), to)))
	}
	b.WriteByte('\n')
	i := 0
	for _, from := range m.From {
		b.WriteString(s.Bold(fmt.Sprintf("%-*s", first, from)))
		for _, to := range m.To {
			b.WriteString("  ")
			for range m.Ports {
				b.WriteString(m.Cells[i].symbol(s))
				i++
			}
			b.WriteString(strings.Repeat(" ", m.width(to)-len(m.Ports)))
		}
		b.WriteByte('\n')
	}
	text := trimLines(b.String())
	_, err := io.WriteString(w, text+s.Faint(legend)+"\n")
	return err
}

// legend explains the symbols of cells.
const legend = "+ through  - blocked  . not served (and not reached)  ! through, should be blocked  x blocked, should be through  ? not tried"

// caption names the ports of a cell.
func (m *Matrix) caption() string {
	var names []string
	for _, p := range m.Ports {
		names = append(names, p.String())
	}
	return fmt.Sprintf("IPv%s; a cell shows %s", m.Family, strings.Join(names, " "))
}

func (m *Matrix) width(to string) int { return max(len(to), len(m.Ports)) }

func trimLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n"))
		b.WriteByte('\n')
	}
	return b.String()
}
