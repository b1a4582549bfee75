package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// traced is an answer of felixctl trace, as far as the page shows it.
type traced struct {
	From, To, Verdict, Why, Service, Disagreement, Because string
	Policies                                               *struct{ Egress, Ingress tracedEnd }
	Programmed                                             []struct {
		Backend string
		Path    *struct {
			Fate, At string
			Steps    []step
		}
	}
	Notes []string
	// Packet is the packet at the endpoint, if To is a Service.
	Packet struct {
		Destination netip.Addr
		Protocol    model.Protocol
		Port        uint16
	}
}

// Denied reports whether a policy denies the packet.
func (t traced) Denied() bool {
	return t.Verdict == "denied" && t.Policies != nil && !(t.Policies.Egress.Allowed && t.Policies.Ingress.Allowed)
}

type tracedEnd struct {
	Who, Why string
	Allowed  bool
	Asked    []struct {
		Policy, Rule, Because string
		Allows                bool
	}
}

type step struct {
	Node, Place, Table, Rule, Effect, Comment, Policy, PolicyRule string
	Number                                                        int
	Sets                                                          []struct{ Set, Member, Owner string }
	Missed                                                        []struct{ Policy, PolicyRule, Because string }
}

// why is the page of a trace.
type why struct {
	From, To, Port, Family string
	Results                []traced
	// Sends reports whether a lab is shown, which can send. Sent is the result of the packet that was sent, or nil.
	Sends bool
	Sent  *sent
}

func whyPage(v *view, s *server, r *http.Request) error {
	q := r.URL.Query()
	if r.Method == http.MethodPost {
		q = r.PostForm
	}
	w := why{From: q.Get("from"), To: q.Get("to"), Port: q.Get("port"), Family: q.Get("family")}
	lab, ok := s.access.(sender)
	w.Sends = ok && lab.Sends()
	v.Title, v.Template = "why", "why"
	asks := w.From != "" && w.To != "" && w.Port != ""
	if r.Method == http.MethodPost {
		if !asks {
			return usage{errors.New("from, to and port are needed")}
		}
		if err := s.send(r.Context(), &w); err != nil {
			return err
		}
	}
	if asks {
		v.Title = fmt.Sprintf("why: %s to %s, %s", w.From, w.To, w.Port)
		if err := w.ask(r.Context(), s); err != nil {
			return err
		}
	}
	v.Body = w
	return nil
}

// CanSend reports whether the lab can send the packet of a result: from pod to pod, and no message of ICMP.
func (w why) CanSend(t traced) bool {
	return w.Sends && isPod(w.From) && isPod(w.To) && t.Packet.Port != 0 && !t.Packet.Protocol.IsICMP()
}

// PortOf is the port of a result's packet as a form has it.
func (w why) PortOf(t traced) string { return fmt.Sprintf("%d/%s", t.Packet.Port, t.Packet.Protocol) }

// FamilyOf is the address family of a result's packet: "4" or "6".
func (w why) FamilyOf(t traced) string { return model.FamilyOf(t.Packet.Destination).String() }

// AllowPath returns the page with policies that would allow what a trace has found denied.
func (w why) AllowPath(t traced) string {
	q := url.Values{"from": {w.From}, "to": {w.To}, "port": {w.Port}, "family": {w.Family}}
	switch p := t.Packet; {
	case p.Protocol.IsICMP():
		q.Set("port", "icmp")
	case p.Port != 0: // the question may have a name for it, or the Service's number
		q.Set("port", fmt.Sprintf("%d/%s", p.Port, p.Protocol))
	}
	if t.Service != "" {
		q.Set("to", t.Packet.Destination.String())
	}
	return (&url.URL{Path: whatIfPath, RawQuery: q.Encode()}).String()
}

// ask has the nodes of both ends answer together.
func (w *why) ask(ctx context.Context, s *server) error {
	// Each value is in the argument of its flag, so that none is taken for another flag.
	flags := []string{"--from=" + w.From, "--to=" + w.To, "--port=" + w.Port, "-o=json"}
	if w.Family != "" {
		flags = append(flags, "--family="+w.Family)
	}
	out, err := s.access.Trace(ctx, flags...)
	if err != nil {
		return err
	}
	return Answer{Out: out}.decode(&w.Results)
}

// previewed is an answer of felixctl preview, as far as the page shows it.
type previewed struct {
	Policies                               []preview.PolicyChange
	Verdicts, StillDenied, VerdictsOfNodes []preview.Difference
	Services                               []preview.ServiceChange
	NoServices                             bool
	// ConnectionsLookedAt, and what follows, is about the node that answers.
	ConnectionsLookedAt bool
	OutlivedConnections []preview.Outlived
	Sockets             []preview.SocketChange
	Warnings            []string
}

// socketOf is a socket of a node that closes.
type socketOf struct {
	preview.SocketChange
	Node string
}

// whatIf is the page of a preview.
type whatIf struct {
	YAML, Delete string
	// Allows is the packet that YAML was proposed for, with Notes about what it does not allow.
	Allows string
	Notes  []string
	Answer *previewed
	// Ending are connections that would be denied now, of all nodes, as Sockets and Warnings are. NotLookedAt are nodes whose connections are not known.
	Ending      []preview.Outlived
	NotLookedAt []string
	Sockets     []socketOf
	Warnings    []string
	Faults      []string
}

func whatIfPage(v *view, s *server, r *http.Request) error {
	v.Title, v.Template = "what if", "what-if"
	// A browser ends lines by CRLF. The page shows the text again, and shows no control character.
	w := whatIf{YAML: strings.ReplaceAll(r.PostForm.Get("yaml"), "\r\n", "\n"), Delete: r.PostForm.Get("delete")}
	if q := r.URL.Query(); r.Method == http.MethodGet && q.Get("from") != "" {
		if err := w.propose(v.Now, q); err != nil {
			return err
		}
	}
	if strings.TrimSpace(w.YAML+w.Delete) != "" {
		if err := w.ask(r.Context(), s); err != nil {
			return err
		}
	}
	v.Body = w
	return nil
}

// propose fills in policies that allow a packet.
func (w *whatIf) propose(now *snapshot, q url.Values) error {
	if err := now.known(); err != nil {
		return err
	}
	port, err := preview.ParsePort(q.Get("port"))
	if err != nil {
		return usage{err}
	}
	p := oracle.Packet{Protocol: port.Protocol, Port: port.First}
	if p.Source, p.Destination, err = now.addresses(q.Get("from"), q.Get("to"), q.Get("family")); err != nil {
		return usage{err}
	}
	proposal, err := preview.Allow(now.Objects, p)
	if err != nil {
		return err
	}
	w.YAML, w.Notes, w.Allows = proposal.YAML, proposal.Notes, fmt.Sprintf("%s to %s, %s", q.Get("from"), q.Get("to"), port)
	return nil
}

// ask asks all nodes: verdicts are of the cluster, connections of the node.
func (w *whatIf) ask(ctx context.Context, s *server) error {
	command := []string{"preview", "-o=json"}
	if strings.TrimSpace(w.YAML) != "" {
		command = append(command, "--filename=-")
	}
	for _, name := range strings.Fields(w.Delete) {
		command = append(command, "--delete="+name)
	}
	answers, err := s.access.Ask(ctx, nil, []byte(w.YAML), command...)
	if err != nil {
		return err
	}
	for _, a := range answers {
		var p previewed
		if err := a.decode(&p); err != nil {
			w.Faults = append(w.Faults, a.Node+": "+err.Error())
			continue
		}
		w.Ending = append(w.Ending, p.OutlivedConnections...)
		if !p.ConnectionsLookedAt {
			w.NotLookedAt = append(w.NotLookedAt, a.Node)
		}
		for _, one := range p.Sockets {
			w.Sockets = append(w.Sockets, socketOf{one, a.Node})
		}
		for _, text := range p.Warnings {
			w.Warnings = append(w.Warnings, a.Node+": "+text)
		}
		if w.Answer == nil {
			p.Verdicts, p.StillDenied = preview.Grouped(p.Verdicts), preview.Grouped(p.StillDenied)
			p.VerdictsOfNodes = preview.Grouped(p.VerdictsOfNodes)
			w.Answer = &p
		}
	}
	if w.Answer == nil && len(w.Faults) > 0 {
		// A mistake in the YAML has the same answer on all nodes.
		_, text, _ := strings.Cut(w.Faults[0], ": ")
		if !slices.ContainsFunc(w.Faults, func(f string) bool { return !strings.HasSuffix(f, ": "+text) }) {
			w.Faults = []string{text}
		}
	}
	return asked(answers)
}

// asked returns an error if no node was asked, so that an empty page is no answer.
func asked(answers []Answer) error {
	if len(answers) == 0 {
		return errors.New("there is no agent to ask")
	}
	return nil
}
