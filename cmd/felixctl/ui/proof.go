package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"go4.org/netipx"
	"golang.org/x/sync/singleflight"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
)

// proofTime bounds the proof of a node. With 1,000 pods and 1,000 policies of ten rules it takes three seconds of one processor.
const proofTime = 30 * time.Second

// proveCommand is the command of felixctl that proves, mostProofs how many of it run in this process at a time: each may need 1 GB.
const (
	proveCommand = "prove"
	mostProofs   = 2
)

// prover has the agents prove one question at a time, because a proof may need 1 GB in the agent's container. Who asks the same meanwhile, or
// shortly after, gets the same answers: a browser asks again when it reloads a page or restores tabs.
type prover struct {
	access Access
	// life ends the proofs. The end of a request does not: others may wait for the answers.
	life   context.Context //nolint:containedctx // a proof outlives the request that began it
	asking singleflight.Group
	// mu is held while the agents prove.
	mu   sync.Mutex
	last map[string]provedAt
}

// provedAt are answers with the time when they came.
type provedAt struct {
	at      time.Time
	answers []Answer
}

// live has the agents compare what they have programmed with another state.
func (p *prover) live(ctx context.Context, other string) ([]Answer, error) {
	done := p.asking.DoChan(other, func() (any, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if last := p.last[other]; time.Since(last.at) < fresh {
			return last.answers, nil
		}
		ctx, cancel := context.WithTimeout(p.life, pageTimeout)
		defer cancel()
		answers, err := p.access.Ask(ctx, nil, nil, proveCommand, "live", other, "-o=json", "--timeout="+proofTime.String())
		if err == nil {
			p.last[other] = provedAt{time.Now(), answers}
		}
		return answers, err
	})
	select {
	case r := <-done:
		answers, _ := r.Val.([]Answer)
		return answers, r.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the proof: %w", ctx.Err())
	}
}

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

// prove has each node compare what it has programmed. A page of another port of this host cannot begin a proof.
func (p *proofs) prove(r *http.Request, s *server) error {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return usage{errors.New("another page asks for a proof: paste the address to begin it")}
	}
	other := p.With
	if other != "wanted" {
		if err := config.CheckChoice("backend", other); err != nil {
			return usage{fmt.Errorf("prove: %w, or wanted", err)}
		}
		other = "backend:" + other
	}
	answers, err := s.prover.live(r.Context(), other)
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
