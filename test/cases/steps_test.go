package cases

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	dumpcli "github.com/felixlike/felixlike/cmd/felixctl/dump/cli"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/cmd/felixctl/prove"
	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// Names of the files of a step that the test reads, behind the step's number.
const (
	setFile     = "set.yaml"
	deleteFile  = "delete"
	restartFile = "restart"
)

// TestSteps leads an agent from step to step. After each, it has the state of an agent that has seen nothing but the result.
func TestSteps(t *testing.T) {
	paths, err := filepath.Glob("testdata/steps/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no case: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := txtar.Format(&txtar.Archive{Comment: a.Comment, Files: walk(t, a)})
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("differs from %s (-file +now); go test ./test/cases -update writes it again\n%s", path, diff)
			}
		})
	}
}

// walk goes through all steps and returns the files of the archive.
func walk(t *testing.T, a *txtar.Archive) []txtar.File {
	t.Helper()
	cluster, err := os.ReadFile("testdata/" + clusterFile)
	if err != nil {
		t.Fatal(err)
	}
	var files []txtar.File
	// inputs are the files of the steps that the test reads.
	inputs := map[int][]txtar.File{}
	for _, f := range a.Files {
		if f.Name == clusterFile {
			cluster, files = f.Data, append(files, f)
			continue
		}
		number, name, _ := strings.Cut(f.Name, "/")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("file %q is of no step", f.Name)
		}
		if name == setFile || name == deleteFile || name == restartFile || name == isolationFile {
			inputs[n] = append(inputs[n], f)
		}
	}
	w := &walker{inventory: inventory{}}
	w.inventory.set(t, cluster)
	w.restart(t)
	w.follow(t, change{set: w.inventory.all()})
	var problems string
	for n := range len(inputs) {
		input := inputs[n+1]
		if len(input) == 0 {
			t.Fatalf("there are %d steps, but none has the number %d", len(inputs), n+1)
		}
		before := w.here
		states := maps.Clone(w.states)
		c, restarts := change{}, false
		for _, f := range input {
			files = append(files, f)
			switch name := f.Name[strings.Index(f.Name, "/")+1:]; name {
			case deleteFile:
				c.delete = w.inventory.delete(t, f.Data)
			case setFile:
				c.set = append(c.set, w.inventory.set(t, f.Data)...)
			case isolationFile:
				w.inventory[isolationFile] = objects{control.Objects{Antrea: antrea.Objects{Isolation: true}}}
				c.set = append(c.set, w.inventory[isolationFile])
			case restartFile:
				restarts = true
			}
		}
		if restarts {
			w.restart(t)
			c = change{set: w.inventory.all()}
		}
		w.follow(t, c)
		add := func(name, text string) {
			files = append(files, txtar.File{Name: fmt.Sprintf("%d/%s", n+1, name), Data: []byte(text)})
		}
		for _, backend := range backends() {
			add(writtenName(backend), written(t, backend, states[backend], w.states[backend], before, w.here))
		}
		if now := w.inventory.total().problems(t); now != problems {
			problems = now
			add("problems", now)
		}
	}
	return files
}

func backends() []string { return []string{config.NFTables, config.IPTablesNFT, config.OpenFlow} }

// writtenName names the file with what a step writes under a backend.
func writtenName(backend string) string {
	return map[string]string{config.NFTables: "nft", config.IPTablesNFT: "iptables", config.OpenFlow: "flows"}[backend]
}

// written lists the differences between two states, with names from the models.
func written(t *testing.T, backend string, before, after *dump.State, was, is *control.Model) string {
	t.Helper()
	part := func(s *dump.State) *dump.State {
		s = compare.Canonical(s, compare.Options{OnlyOurs: true})
		switch backend {
		case config.NFTables:
			return &dump.State{Tables: s.Tables}
		case config.OpenFlow:
			return &dump.State{Flows: s.Flows}
		}
		four := slices.DeleteFunc(s.Tables, func(t *dump.Table) bool { return t.IPFamily() == model.IPv6 })
		return &dump.State{Tables: four, IPSets: s.IPSets}
	}
	var b bytes.Buffer
	sides := compare.Sides{Before: part(before), After: part(after), NoteBefore: names.Of(was).Note, NoteAfter: names.Of(is).Note}
	if err := dumpcli.PrintStructure(&b, compare.Structure(sides, compare.Options{})); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// walker has an agent and its cluster.
type walker struct {
	inventory inventory
	engine    *policy.Engine
	nodes     map[string]*wanted.Node
	// attached has the pods that have a port, by their names. It survives the agent: the switch has them.
	attached map[string]control.Attachment
	nextPort uint32
	// known are the attachments that the agent has seen.
	known []control.Attachment
	// here and states are the model and, by the backend, the state that the agent programs.
	here   *control.Model
	states map[string]*dump.State
}

// restart replaces the agent by one that knows nothing yet.
func (w *walker) restart(t *testing.T) {
	t.Helper()
	w.engine, w.known, w.nodes = policy.New(node), nil, map[string]*wanted.Node{}
	like := w.inventory.total().model(t, node)
	for _, backend := range backends() {
		n, err := wanted.NewNode(like, backend)
		if err != nil {
			t.Fatal(err)
		}
		n.Update((&control.Model{HostAddresses: like.HostAddresses, LogsReported: like.LogsReported}).Updates())
		w.nodes[backend] = n
	}
}

// change has the objects of a step.
type change struct{ set, delete []objects }

// follow has the agent take a change, and programs the result.
func (w *walker) follow(t *testing.T, c change) {
	t.Helper()
	for _, o := range c.delete {
		o.deleteFrom(w.engine)
	}
	for _, o := range c.set {
		o.setIn(w.engine)
	}
	w.attach()
	w.here = w.inventory.total().model(t, node, slices.Collect(maps.Values(w.attached))...)
	updates := append(w.engine.Flush(), w.ports(w.here.Attachments)...)
	w.states = map[string]*dump.State{}
	for backend, n := range w.nodes {
		n.Update(updates)
		has, err := n.State()
		if err != nil {
			t.Fatal(err)
		}
		want, err := wanted.Of(w.here, backend)
		if err != nil {
			t.Fatal(err)
		}
		note := names.Of(w.here).Note
		o := compare.Options{OnlyOurs: true}
		sides := compare.Sides{Before: compare.Canonical(want, o), After: compare.Canonical(has, o), NoteBefore: note, NoteAfter: note}
		if text, err := compare.Text(sides, o, "without history", "with these steps"); err != nil || len(text) > 0 {
			t.Errorf("%s: %v\n%s", backend, err, text)
		}
		w.states[backend] = has
	}
	for backend, has := range w.states {
		if backend == config.NFTables {
			continue
		}
		r, err := prove.Compare(t.Context(), prove.Side{State: w.states[config.NFTables], Model: w.here}, prove.Side{State: has, Model: w.here}, prove.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Differences {
			t.Errorf("%s: %s, %s: %s: %s, nftables %s", backend, d.Way, d.Connection, d.Packet, d.B, d.A)
		}
	}
}

// attach gives each new pod of the node a port, and takes it from those that are gone.
func (w *walker) attach() {
	was := w.attached
	w.attached = map[string]control.Attachment{}
	for _, p := range w.inventory.total().Pods {
		id := model.PodID{Namespace: p.Namespace, Name: p.Name}
		if p.Spec.NodeName != node || p.Spec.HostNetwork {
			continue
		}
		a, ok := was[id.String()]
		if !ok {
			w.nextPort++
			a = control.Attachment{
				Pod: id, Interface: fmt.Sprintf("%s%d", model.PodInterfacePrefix, 1000+w.nextPort), OFPort: 1000 + w.nextPort, MAC: ovsdb.GatewayMAC(id.String()).String(),
			}
		}
		w.attached[id.String()] = a
	}
}

// ports returns the updates by which the agent learns of the attachments.
func (w *walker) ports(now []control.Attachment) (all []model.Update) {
	for _, a := range w.known {
		if !slices.ContainsFunc(now, func(b control.Attachment) bool { return a.Interface == b.Interface }) {
			all = append(all, model.AttachmentRemove{Pod: a.Pod, Interface: a.Interface})
		}
	}
	for _, a := range now {
		if !slices.ContainsFunc(w.known, func(b control.Attachment) bool { return reflect.DeepEqual(a, b) }) {
			mac, _ := net.ParseMAC(a.MAC)
			all = append(all, model.AttachmentUpdate{Attachment: &model.Attachment{
				Pod: a.Pod, Interface: a.Interface, OFPort: a.OFPort, MAC: mac, Addresses: a.Addresses,
			}})
		}
	}
	w.known = now
	return all
}
