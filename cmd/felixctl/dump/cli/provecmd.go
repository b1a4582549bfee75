package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/prove"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/internal/terminal"
)

// proving is one run of prove.
type proving struct {
	sides    sides
	onlyOurs bool
	output   terminal.Output
}

// ProveCommand returns `felixctl prove`.
func ProveCommand() *cobra.Command {
	p := &proving{}
	c := &cobra.Command{
		Use:   "prove A [B]",
		Short: "Prove that two states give all packets the same verdict, or find a packet that they do not",
		Long: `Prove that two states give all packets the same verdict, or find a packet that they
do not. A and B are any of (B: wanted, if it is left out):

` + sidesHelp + `

prove follows sets of packets, not samples. If the flows of the switch are the same on both
sides, it compares all packets of all connections on their way through the host. If they
differ, as between two backends of which one judges in the switch, it compares where the first
packet of each connection ends. The certificate says which, and what was assumed.

If a packet reaches an object that prove does not understand, prove names it and ends.

Exit codes: 0 equal; 1 different; 2 not proved, wrong usage, or the command failed; 3 no
difference in what could be compared, and the certificate names the rest.`,
		Example: `  felixctl prove live
  felixctl prove backend:nftables backend:openflow
  felixctl prove before live
  felixctl prove live ./manifests`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error { return p.run(c, append(args, "wanted")[:2]) },
	}
	p.sides.flags(c)
	c.Flags().BoolVar(&p.onlyOurs, "only-ours", true, "allow rules of other programs to differ (false: read them, and require the same text)")
	p.output.Flag(c)
	return c
}

// certificate is the result as JSON.
type certificate struct {
	// Equal is set if nothing differs and all was compared.
	Equal   bool        `json:"equal"`
	Version string      `json:"version"`
	A       provedState `json:"a"`
	B       provedState `json:"b"`
	*prove.Result
}

// provedState names a state. SHA256 hashes its text in a fixed order, without counters, traffic and other programs' objects.
type provedState struct {
	Title  string `json:"title"`
	SHA256 string `json:"sha256"`
}

func (p *proving) run(c *cobra.Command, args []string) error {
	p.sides.in, p.sides.everything = c.InOrStdin(), !p.onlyOurs
	return p.sides.agent.call(c.Context(), func(ctx context.Context) error {
		stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("proving"))
		both, out, err := p.prove(ctx, [2]string{args[0], args[1]})
		stop()
		if err != nil {
			return err
		}
		for _, s := range both {
			if s.busy {
				return &prove.NotProved{Place: s.title, Reason: "the agent was programming all the while, so this may be half of one state and half of another: try again"}
			}
		}
		w := c.OutOrStdout()
		err = p.output.Print(w, out, func() error { return out.text(w, p.output.Style(w)) })
		switch {
		case err != nil:
		case len(out.Differences) > 0:
			err = ErrDifferent
		case !out.Equal:
			err = ErrPartly
		}
		return err
	})
}

func (p *proving) prove(ctx context.Context, names [2]string) (both [2]*side, out *certificate, err error) {
	if both, err = p.sides.pair(ctx, names); err != nil {
		return both, nil, err
	}
	if out, err = certify(ctx, both, p.onlyOurs); err != nil {
		return both, nil, err
	}
	for i, s := range both {
		hash := sha256.New()
		if err := dump.Write(hash, compare.Canonical(s.state, compare.Options{OnlyOurs: true}), dump.TextOptions{}); err != nil {
			return both, nil, fmt.Errorf("%s: %w", s.title, err)
		}
		*[]*provedState{&out.A, &out.B}[i] = provedState{s.title, hex.EncodeToString(hash.Sum(nil))}
	}
	return both, out, nil
}

// certify proves, and leaves out the names of the states. An error is a *prove.NotProved, or the context's.
func certify(ctx context.Context, both [2]*side, onlyOurs bool) (*certificate, error) {
	var sides [2]prove.Side
	for i, s := range both {
		if kindsOf(s) == "" {
			return nil, &prove.NotProved{Place: s.title, Reason: "it has no policy of felixlike"}
		}
		sides[i] = prove.Side{State: s.state, Model: s.model}
	}
	r, err := prove.Compare(ctx, sides[0], sides[1], prove.Options{OnlyOurs: onlyOurs})
	if err != nil {
		return nil, err
	}
	return &certificate{Version: version.String(), Result: r, Equal: len(r.Differences)+len(r.NotProved) == 0}, nil
}

// mostLines bounds the lines of text about differences.
const mostLines = 20

func (c *certificate) text(w io.Writer, style terminal.Style) error {
	var b strings.Builder
	switch {
	case c.Equal:
		fmt.Fprintf(&b, "%s: no packet tells A and B apart\n\n", style.Good("equal"))
	case len(c.Differences) == 0:
		fmt.Fprintf(&b, "%s: no compared packet tells A and B apart\n\n", style.Bad("proved in part"))
	default:
		c.different(&b, style)
	}
	row := func(name, text string) {
		for i, line := range wrapped(text, 68) {
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(&b, "%-10s  %s\n", name, line)
		}
	}
	row("A", c.A.Title)
	row("", "sha256 "+c.A.SHA256[:32])
	row("B", c.B.Title)
	row("", "sha256 "+c.B.SHA256[:32])
	row("compared", c.Compared)
	for _, one := range c.Classes {
		row("classes", fmt.Sprintf("%s: %d of addresses, %d of protocols and ports, %d of interfaces", one.Family, one.Addresses, one.Ports, one.Interfaces))
	}
	for _, one := range c.NotProved {
		row("not proved", one)
	}
	for _, one := range c.Assumed {
		row("assumed", one)
	}
	row("version", c.Version)
	_, err := io.WriteString(w, b.String())
	return err
}

// different writes the smallest packet and the regions.
func (c *certificate) different(b *strings.Builder, style terminal.Style) {
	d := c.Differences[0]
	fmt.Fprintf(b, "%s, for example:\n  %s\n  %s, connection: %s\n", style.Bad("different"), d.Packet, d.Way, d.Connection)
	for _, one := range d.Packet.Assumed {
		fmt.Fprintf(b, "  with: %s\n", one)
	}
	fmt.Fprintf(b, "  A: %s\n  B: %s\n\n", d.A, d.B)
	seen := map[[5]string]bool{} // both families may have one
	var lines []string
	for _, d := range c.Differences {
		for _, r := range d.Regions {
			a, _, _ := strings.Cut(d.A, ", ") // the source that NAT gives depends on the interface as well
			b, _, _ := strings.Cut(d.B, ", ")
			if key := [5]string{r.Source, r.Destination, r.Ports, a, b}; !seen[key] {
				seen[key] = true
				lines = append(lines, fmt.Sprintf("%s -> %s %s: A %s, B %s", r.Source, r.Destination, r.Ports, d.A, d.B))
			}
		}
	}
	if more := len(lines) - mostLines; more > 0 {
		lines = append(lines[:mostLines], fmt.Sprintf("%d more regions (-o json has them)", more))
	}
	for _, line := range lines {
		for i, part := range wrapped(line, 76) {
			fmt.Fprintf(b, "%s%s\n", strings.Repeat(" ", min(i, 1)*4), part)
		}
	}
	b.WriteByte('\n')
}

// wrapped breaks a text into lines.
func wrapped(text string, width int) (lines []string) {
	for _, word := range strings.Fields(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}
