package ui

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
)

// proofTime bounds the proof of a node. With 1,000 pods and 1,000 policies of ten rules it takes three seconds.
const proofTime = 10 * time.Second

// proved is an answer of felixctl prove, as far as the page shows it.
type proved struct {
	Node string
	// Fault is why nothing is proved.
	Fault       string
	Equal       bool
	Compared    string
	NotProved   []string
	Differences []struct {
		A, B, Way, Connection string
		Packet                provedPacket
		MoreRegions           bool
		Regions               []struct {
			Source, Destination, Ports string
			Sources, Destinations      []netipx.IPRange
		}
	}
}

type provedPacket struct {
	From, To            string
	Source, Destination netip.Addr
	Protocol            model.Protocol
	Port                uint16
}

// mostRegions bounds the rows about a node.
const mostRegions = 20

// More counts the rows that are not shown.
func (p proved) More() int { return p.regions() - mostRegions }

func (p proved) regions() (n int) {
	for _, d := range p.Differences {
		n += len(d.Regions)
	}
	return n
}

// provedRegion are packets that are treated as A now and as B in the other state.
type provedRegion struct{ Source, Destination, Ports, A, B string }

// Regions are the first packets that differ.
func (p proved) Regions() (all []provedRegion) {
	for _, d := range p.Differences {
		for _, r := range d.Regions {
			if len(all) == mostRegions {
				return all
			}
			all = append(all, provedRegion{r.Source, r.Destination, r.Ports, d.A, d.B})
		}
	}
	return all
}

// proofs are a part of the page of backends.
type proofs struct {
	// With is what the programmed state is compared with: wanted, or the name of a backend. It is empty if nobody has asked.
	With     string
	Backends []string
	Nodes    []proved
}

// prove has each node compare what it has programmed.
func (p *proofs) prove(r *http.Request, s *server) error {
	other := p.With
	if other != "wanted" {
		if err := config.CheckChoice("backend", other); err != nil {
			return usage{fmt.Errorf("prove: %w, or wanted", err)}
		}
		other = "backend:" + other
	}
	answers, err := s.access.Ask(r.Context(), nil, nil, "prove", "live", other, "-o=json", "--timeout="+proofTime.String())
	if err != nil {
		return err
	}
	for _, a := range answers {
		p.Nodes = append(p.Nodes, provedBy(a))
	}
	return asked(answers)
}

// provedBy reads an answer. One that proves a part has an exit code that counts as a Fault, and a certificate.
func provedBy(a Answer) proved {
	var p proved
	if err := (Answer{Out: a.Out}).decode(&p); err != nil {
		reason := cmp.Or(a.Fault, err.Error())
		if _, after, found := strings.Cut(reason, "not proved: "); found {
			reason = after
		}
		p = proved{Fault: reason}
	}
	p.Node = a.Node
	return p
}

func backendsPage(v *view, s *server, r *http.Request) error {
	p := proofs{With: r.URL.Query().Get("prove"), Backends: config.BackendNames()}
	// The page does not load itself again with a proof, which costs the nodes more than a look.
	v.Title, v.Template, v.Live = "backends", "backends", p.With == ""
	if p.With != "" {
		if err := p.prove(r, s); err != nil {
			return err
		}
	}
	v.Body = p
	return nil
}
