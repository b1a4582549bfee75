package ui

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/model"
)

// mostEnds bounds the ends among which all are asked about: the time and the rows grow with their square.
const mostEnds = 200

// mostClasses bounds the rows of a matrix by class. With more, it is by namespace.
const mostClasses = 80

// Kinds of a cell.
const (
	openCell   = "a"
	closedCell = "d"
	portsCell  = "p"
	mixedCell  = "m"
	emptyCell  = "n"
)

// matrix has the verdicts between the ends of a cluster. Pods that no policy distinguishes are one end.
type matrix struct {
	mu    sync.Mutex
	world *preview.World
	ends  []*preview.End
	// byPod has the index of each pod's end, and known the verdicts of pairs.
	byPod map[string]int
	known map[[2]int]string
	// byAddress has the end of each pod's address.
	byAddress map[netip.Addr]int
	// inside are the addresses of nodes, and all that pods and Services have or may get. Bounded reports that these are known.
	inside  *netipx.IPSet
	bounded bool
}

// verdicts returns the matrix of the cluster.
func (c *cluster) verdicts() *matrix {
	c.once.Do(func() {
		m := &matrix{byPod: map[string]int{}, known: map[[2]int]string{}, byAddress: map[netip.Addr]int{}}
		var failsafe model.Failsafe
		var services []netip.Prefix
		if c.node != nil {
			failsafe, services = c.node.Failsafe, c.node.ServiceCIDRs
		}
		m.world = preview.NewWorld(c.Objects, failsafe, nil)
		m.world.Divide(nil)
		for _, e := range m.world.Ends(m.world.All()) {
			if strings.HasPrefix(e.Words(), "node:") {
				continue // nodes are on the pages of pods: their own node always reaches them, so that each row would be mixed
			}
			for _, p := range e.Pods() {
				m.byPod[p.Namespace+"/"+p.Name] = len(m.ends)
				for _, ip := range p.Status.PodIPs {
					if a, err := netip.ParseAddr(ip.IP); err == nil {
						m.byAddress[a] = len(m.ends)
					}
				}
			}
			m.ends = append(m.ends, e)
		}
		m.enclose(c.Objects, services)
		c.matrix = m
	})
	return c.matrix
}

// No packets, and ports that depend on the family.
const (
	noPackets = "-"
	mixed     = "some"
)

// pair returns the ports that are open between two ends, "" for none.
func (m *matrix) pair(from, to int) string {
	key := [2]int{from, to}
	if text, known := m.known[key]; known {
		return text
	}
	open := map[model.Family][]model.PortRange{}
	asked := map[model.Family]bool{}
	m.world.Judge(m.ends[from], m.ends[to], nil, nil, func(p preview.Packets) {
		asked[p.Family] = true
		if p.Allowed {
			open[p.Family] = append(open[p.Family], p.Ports)
		}
	})
	text := noPackets
	for f := range asked {
		ports := ""
		if len(open[f]) > 0 {
			ports = strings.Join(preview.PortsText(open[f]), " ")
		}
		if text = joined(text, ports); text == mixed {
			break
		}
	}
	m.known[key] = text
	return text
}

// joined is the text for both of two sets of packets.
func joined(a, b string) string {
	switch {
	case a == noPackets:
		return b
	case b == noPackets || a == b:
		return a
	}
	return mixed
}

// group is a row and column: ends with one name.
type group struct {
	Name string
	// Asked is the text by which felixctl reach names it.
	Asked string
	More  int
	ends  []int
}

// cell is one of the matrix, without the class that all cells of its row have by default.
type cell struct{ Class, Text string }

// row is one of the matrix. Open rows have open cells by default, others denied ones.
type row struct {
	group
	Open  bool
	Cells []cell
}

// matrixPage is the page.
type matrixPage struct {
	By, From, To string
	Namespaces   []string
	Columns      []group
	Rows         []row
	Ends         int
	// Backends are the choices for Proof. Proof compares the programmed state with a backend; it is nil until a reader asks for it.
	Backends []string
	Proof    *proofs
	// Framed counts the cells with packets that differ, Incomplete the nodes with packets that are not compared, or differ and have no cell here.
	Framed, Incomplete int
}

// groups returns the ends by class or namespace, as rows or columns. A namespace that is not "" leaves out pods of others.
func (m *matrix) groups(byNamespace bool, namespace string, column bool) []group {
	var all []group
	at := map[string]int{}
	for i, e := range m.ends {
		g := group{Name: "outside", Asked: "outside"}
		if pods := e.Pods(); len(pods) > 0 {
			if namespace != "" && pods[0].Namespace != namespace {
				continue
			}
			g.Name = pods[0].Namespace + "/" + pods[0].Name
			// One pod stands for its class. Columns name another one than rows, because a pod always reaches itself.
			asked := pods[0]
			if column {
				asked = pods[len(pods)-1]
			}
			if g.Asked, g.More = asked.Namespace+"/"+asked.Name, len(pods)-1; byNamespace {
				g = group{Name: pods[0].Namespace, Asked: "namespace:" + pods[0].Namespace}
			}
		}
		known, is := at[g.Name]
		if !is {
			known = len(all)
			at[g.Name] = known
			all = append(all, g)
		}
		all[known].ends = append(all[known].ends, i)
	}
	return all
}

// has reports whether one of the groups has an end.
func has(all []group, end int) bool {
	return slices.ContainsFunc(all, func(g group) bool { return slices.Contains(g.ends, end) })
}

// marked are the pairs of ends whose cells have a class.
type marked struct {
	class string
	pairs map[[2]int]bool
}

// page makes the matrix of the ends, with marks where packets were denied, and frames where a proof has found a difference.
func (m *matrix) page(by, from, to string, denied *report.DropSums, proof *proofs) matrixPage {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[string]bool{}
	for _, e := range m.ends {
		for _, p := range e.Pods() {
			names[p.Namespace] = true
		}
	}
	p := matrixPage{By: by, From: from, To: to, Namespaces: slices.Sorted(maps.Keys(names)), Ends: len(m.ends), Backends: config.BackendNames(), Proof: proof}
	rows, columns := m.groups(by == "namespace", from, false), m.groups(by == "namespace", to, true)
	if by != "namespace" && max(len(rows), len(columns)) > mostClasses+1 { // and the outside
		p.By = "namespace"
		rows, columns = m.groups(true, from, false), m.groups(true, to, true)
	}
	p.Columns = columns
	marks := []marked{{"x", m.marks(denied)}}
	if proof != nil {
		shown := func(a, b int) bool { return has(rows, a) && has(columns, b) }
		pairs := map[[2]int]bool{}
		for _, n := range proof.Nodes {
			if !m.frame(n, pairs, shown) || n.incomplete() {
				p.Incomplete++
			}
		}
		marks = append(marks, marked{frameClass, pairs})
	}
	for _, from := range rows {
		r := m.row(from, columns, marks)
		for _, c := range r.Cells {
			if strings.HasSuffix(c.Class, " "+frameClass) {
				p.Framed++
			}
		}
		p.Rows = append(p.Rows, r)
	}
	return p
}

func (m *matrix) row(from group, columns []group, marks []marked) row {
	r := row{group: from}
	open := 0
	for _, to := range columns {
		c := m.cell(from, to)
		if c.Class == openCell {
			open++
		}
		for _, mark := range marks {
			if slices.ContainsFunc(from.ends, func(a int) bool {
				return slices.ContainsFunc(to.ends, func(b int) bool { return mark.pairs[[2]int{a, b}] })
			}) {
				c.Class += " " + mark.class
			}
		}
		r.Cells = append(r.Cells, c)
	}
	r.Open = open > len(columns)/2
	byDefault := closedCell
	if r.Open {
		byDefault = openCell
	}
	for i := range r.Cells {
		if r.Cells[i].Class == byDefault {
			r.Cells[i].Class = ""
		}
	}
	return r
}

func (m *matrix) cell(from, to group) cell {
	text := noPackets
	for _, a := range from.ends {
		for _, b := range to.ends {
			text = joined(text, m.pair(a, b))
		}
	}
	switch text {
	case "":
		return cell{Class: closedCell}
	case "all":
		return cell{Class: openCell}
	case noPackets:
		return cell{Class: emptyCell}
	case mixed:
		return cell{Class: mixedCell}
	}
	// The page of the row has all ports.
	first, more, _ := strings.Cut(text, " ")
	first = strings.TrimPrefix(first, "tcp/")
	if n := len(strings.Fields(more)); n > 0 {
		first += "+" + strconv.Itoa(n)
	}
	return cell{portsCell, first}
}

// marks are the pairs of ends between which packets were denied.
func (m *matrix) marks(denied *report.DropSums) map[[2]int]bool {
	all := map[[2]int]bool{}
	ends := func(e control.DropEnd) []int {
		if i, known := m.byPod[e.Pod]; known {
			return []int{i}
		}
		if e.Pod != "" || e.Node != "" {
			return nil
		}
		var outside []int
		for i, one := range m.ends {
			if len(one.Pods()) == 0 {
				outside = append(outside, i)
			}
		}
		return outside
	}
	for _, d := range denied.Sorted() {
		for _, a := range ends(d.From) {
			for _, b := range ends(d.To) {
				all[[2]int{a, b}] = true
			}
		}
	}
	return all
}

// matrixOf is the matrix of a snapshot, with marks of the last minute, and frames if there is a proof.
func (s *snapshot) matrixOf(by, from, to string, proof *proofs) matrixPage {
	return s.verdicts().page(by, from, to, s.drops(report.DropFilter{}, time.Minute), proof)
}
