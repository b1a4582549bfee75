package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
)

// Node is the node to read.
type Node struct {
	// NetNS is the path of the node's network namespace; the caller's if empty.
	NetNS string
	// OVSRunDir and Bridge locate the switch; without them no switch is read.
	OVSRunDir, Bridge string
}

// Part is the output of one tool.
type Part struct {
	// Command is the command line.
	Command string `json:"command"`
	// Format chooses the parser, Family the family of an iptables-save listing.
	Format dump.Format  `json:"format"`
	Family model.Family `json:"family,omitempty"`
	Text   string       `json:"text"`
}

// Options choose the listings.
type Options struct {
	// Backend chooses the backend to read; "" reads no policy.
	Backend string
	// Services reads the table of Services. It may be very large.
	Services bool
	// Everything reads all tables of nftables and both variants of iptables, also
	// those of other programs.
	Everything bool
}

// Read asks the tools.
func Read(ctx context.Context, n Node, o Options) ([]Part, error) {
	var all []Part
	for _, p := range parts(n, o) {
		text, err := n.run(ctx, p.argv)
		switch {
		case err == nil:
		case p.optional && missing(err):
			continue
		default:
			return nil, err
		}
		all = append(all, Part{Command: strings.Join(p.argv, " "), Format: p.format, Family: p.family, Text: text})
	}
	return all, nil
}

// part is a tool to ask. One that is optional may be missing, or have nothing.
type part struct {
	format   dump.Format
	family   model.Family
	optional bool
	argv     []string
}

func parts(n Node, o Options) []part {
	var all []part
	nft := func(args ...string) {
		all = append(all, part{format: dump.FormatNFT, optional: true, argv: append([]string{"nft"}, args...)})
	}
	xtables := func(variant string, optional bool) {
		for _, f := range model.Families() {
			tool := variant
			if f == model.IPv6 {
				tool = "ip6" + strings.TrimPrefix(tool, "ip")
			}
			all = append(all, part{dump.FormatIPTables, f, optional, []string{tool + "-save", "-c"}})
		}
	}
	switch {
	case o.Everything:
		nft("list", "ruleset")
		xtables(config.IPTablesLegacy, true)
		if o.Backend == config.IPTablesNFT || o.Backend == config.IPTables {
			xtables(o.Backend, true)
		}
		all = append(all, part{dump.FormatIPSets, 0, true, []string{"ipset", "save"}})
	case o.Backend == config.NFTables:
		nft("list", "table", "inet", nftables.DefaultTable)
	case o.Backend == config.OpenFlow:
		nft("list", "table", "inet", nftables.HostTable)
	case o.Backend != "":
		xtables(o.Backend, false)
		all = append(all, part{dump.FormatIPSets, 0, false, []string{"ipset", "save"}})
	}
	if o.Backend != "" && !o.Everything {
		nft("list", "table", "inet", nftables.SendersTable)
		nft("list", "table", "inet", nftables.TunnelTable)
		nft("list", "table", "inet", nftables.EgressTable)
		nft("list", "table", "inet", nftables.HostsTable)
		nft("list", "table", "inet", nftables.PodSourcesTable)
		nft("list", "table", "bridge", nftables.PodSourcesTable)
		if o.Services {
			nft("list", "table", "inet", rules.ServicesTable)
		}
	}
	if n.Bridge != "" {
		socket := filepath.Join(n.OVSRunDir, n.Bridge+".mgmt")
		all = append(all, part{dump.FormatFlows, 0, o.Backend != config.OpenFlow, []string{
			"ovs-ofctl", "-O", "OpenFlow15", "--no-names", "dump-flows", "unix:" + socket,
		}})
	}
	return all
}

// missing reports whether the tool is missing, or did not find the object.
func missing(err error) bool {
	var failed *exec.ExitError
	return errors.Is(err, exec.ErrNotFound) || errors.As(err, &failed) &&
		(strings.Contains(err.Error(), "No such file or directory") || strings.Contains(err.Error(), "failed to connect"))
}

// run runs a tool in the node's namespace and returns its output.
func (n Node) run(ctx context.Context, argv []string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	err := n.do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w %s", strings.Join(argv, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// do calls f on a thread in the node's namespace.
func (n Node) do(f func() error) error {
	if n.NetNS == "" {
		return f()
	}
	ns, err := namespace.At(n.NetNS)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(f)
}

// Parse reads the parts into one state.
func Parse(parts []Part) (*dump.State, error) {
	all := &dump.State{}
	for _, p := range parts {
		s, err := p.parse()
		if err != nil {
			return nil, fmt.Errorf("parse the output of %s: %w", p.Command, err)
		}
		all.Add(s)
	}
	return all, nil
}

func (p *Part) parse() (*dump.State, error) {
	s, in := &dump.State{}, strings.NewReader(p.Text)
	var err error
	switch p.Format {
	case dump.FormatNFT:
		s.Tables, err = dump.ParseNFT(in)
	case dump.FormatIPTables:
		s.Tables, err = dump.ParseIPTables(in, p.Family)
	case dump.FormatIPSets:
		s.IPSets, err = dump.ParseIPSets(in)
	case dump.FormatFlows:
		s.Flows, err = flowtext.Read(in)
	default:
		err = fmt.Errorf("unknown format %s", p.Format)
	}
	return s, err
}
