package ui

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/model"
)

// The pages that take POST: the first changes nothing, the second sends one packet in a lab.
const (
	whatIfPath = "/what-if"
	tracePath  = "/why"
)

// pageOf fills in a page.
type pageOf func(*view, *server, *http.Request) error

var pages = map[string]pageOf{
	"GET /{$}": clusterPage, "GET /matrix": matrixOf, "GET /reach": reachPage, "GET /pod/{namespace}/{name}": podPage, "GET " + tracePath: whyPage, "POST " + tracePath: whyPage,
	"GET /denied": deniedPage, "GET " + whatIfPath: whatIfPage, "POST " + whatIfPath: whatIfPage, "GET /policies": policiesPage, "GET /backends": backendsPage,
	"GET /": func(*view, *server, *http.Request) error { return usage{errors.New("there is no such page")} },
}

// usage is an error of the request.
type usage struct{ error }

// Unwrap returns the error itself.
func (u usage) Unwrap() error { return u.error }

func isUsage(err error) bool { return errors.As(err, &usage{}) }

func clusterPage(v *view, _ *server, _ *http.Request) error {
	v.Title, v.Template, v.Live, v.Body = "cluster", "cluster", true, v.Now.problems()
	return nil
}

func matrixOf(v *view, s *server, r *http.Request) error {
	if err := v.Now.known(); err != nil {
		return err
	}
	q := r.URL.Query()
	by := cmp.Or(q.Get("by"), "class")
	if by != "class" && by != "namespace" {
		return usage{fmt.Errorf("by=%q: must be class or namespace", by)}
	}
	var proof *proofs
	if backend := q.Get("backend"); backend != "" {
		if err := config.CheckChoice("backend", backend); err != nil {
			return usage{err}
		}
		proof = &proofs{With: backend}
		if err := proof.prove(r, s); err != nil {
			return err
		}
	}
	v.Title, v.Template, v.Live = "who reaches whom", "matrix", proof == nil
	v.Body = v.Now.matrixOf(by, q.Get("from"), q.Get("to"), proof)
	return nil
}

// known returns an error if there are no objects to evaluate.
func (s *snapshot) known() error {
	if s.Fault != "" {
		return errors.New(s.Fault)
	}
	return nil
}

// reachAnswer is the page of /reach.
type reachAnswer struct {
	From, To, Port string
	*preview.Reach
	Note            string
	Allowed, Denied []preview.Way
	// More counts ways beyond mostWays, which are in neither.
	More int
}

// mostWays bounds the rows of a page, of each verdict.
const mostWays = 1000

// answer asks preview, and takes "no policy applies" for an answer.
func (s *snapshot) answer(ctx context.Context, from, to string, port model.PortRange) (*reachAnswer, error) {
	if err := s.known(); err != nil {
		return nil, err
	}
	if n := len(s.verdicts().ends); from == "" && to == "" && n > mostEnds {
		return nil, usage{fmt.Errorf("%d classes of pods and addresses are too many for all ways between them: name one end", n)}
	}
	a := &reachAnswer{From: from, To: to}
	r, err := s.reach(ctx, preview.Question{From: from, To: to, Port: port})
	if errors.Is(err, preview.ErrNoPolicy) {
		a.Note, r = err.Error(), &preview.Reach{}
	} else if err != nil {
		return nil, usage{err}
	}
	a.Reach = r
	for _, w := range r.Ways {
		of := &a.Denied
		if w.Verdict == preview.Allowed {
			of = &a.Allowed
		}
		if len(*of) == mostWays {
			a.More++
			continue
		}
		*of = append(*of, w)
	}
	return a, nil
}

func reachPage(v *view, _ *server, r *http.Request) error {
	q := r.URL.Query()
	var port model.PortRange
	if text := q.Get("port"); text != "" {
		var err error
		if port, err = preview.ParsePort(text); err != nil {
			return usage{err}
		}
	}
	a, err := v.Now.answer(r.Context(), q.Get("from"), q.Get("to"), port)
	if err != nil {
		return err
	}
	a.Port = q.Get("port")
	v.Title, v.Template, v.Body = "from "+cmp.Or(a.From, "anywhere")+" to "+cmp.Or(a.To, "anywhere"), "reach", a
	return nil
}

// onePod is the page of a pod.
type onePod struct {
	Name     string
	Pod      *corev1.Pod
	Endpoint control.Endpoint
	// Known reports that its node gave the Endpoint.
	Known   bool
	In, Out *reachAnswer
	// Hits are the rules of the pod's policies, with their counters on its node: those of all its pods there to which the policy applies.
	Hits   policies
	Denied denied
}

// hits returns the rules of a pod's policies with their counters on its node.
func (s *snapshot) hits(pod *corev1.Pod, e control.Endpoint, known bool) (p policies) {
	if !known {
		p.Faults = []string{pod.Spec.NodeName + ": the policies of this pod are not known"}
		return p
	}
	for _, n := range s.Nodes {
		if n.Name != pod.Spec.NodeName {
			continue
		}
		hits := n.Hits
		hits.Rules = slices.DeleteFunc(slices.Clone(hits.Rules), func(h control.RuleHits) bool {
			of := e.IngressPolicies
			if strings.HasPrefix(h.Rule, model.Egress.String()) {
				of = e.EgressPolicies
			}
			return h.Node || !slices.Contains(of, h.Policy)
		})
		p.RuleSums = report.SumOfRules([]control.Hits{hits})
		if n.Fault != "" || n.Hits.At.IsZero() {
			p.Faults = []string{n.Name + ": its counters are not known: " + strings.Join(n.Reasons(), "; ")}
		}
	}
	return p
}

// State has what the pod's node says about the pod.
func (p onePod) State() string {
	switch {
	case p.Known && p.Endpoint.Reason != "":
		return p.Endpoint.State + ": " + p.Endpoint.Reason
	case p.Known:
		return p.Endpoint.State
	case p.Pod.Spec.HostNetwork:
		return "in the network of its node"
	case p.Pod.Spec.NodeName == "":
		return "on no node yet"
	}
	return "not known: its node does not answer, or does not have it"
}

// IsolatedBy names the policies of a direction. Only a programmed pod without policies is open, as in felixctl status.
func (p onePod) IsolatedBy(all []string) string {
	switch {
	case len(all) > 0:
		return strings.Join(all, ", ")
	case p.Endpoint.State == control.EndpointProgrammed:
		return "nothing"
	}
	return "not known"
}

// hasAddress reports whether packets to and from a pod can be evaluated.
func hasAddress(p *corev1.Pod) bool {
	return p.Spec.HostNetwork && p.Spec.NodeName != "" || len(p.Status.PodIPs) > 0 && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func podPage(v *view, _ *server, r *http.Request) error {
	if err := v.Now.known(); err != nil {
		return err
	}
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	p := onePod{Name: namespace + "/" + name, Pod: v.Now.pod(namespace, name)}
	if p.Pod == nil {
		return usage{fmt.Errorf("there is no pod %s", p.Name)}
	}
	p.Endpoint, p.Known = v.Now.endpoint(p.Pod)
	p.In = &reachAnswer{Reach: &preview.Reach{}, Note: "No packet is evaluated: the pod has no address"}
	p.Out = p.In
	var err error
	if hasAddress(p.Pod) {
		if p.In, err = v.Now.answer(r.Context(), "", p.Name, model.PortRange{}); err == nil {
			p.Out, err = v.Now.answer(r.Context(), p.Name, "", model.PortRange{})
		}
	}
	p.Hits = v.Now.hits(p.Pod, p.Endpoint, p.Known)
	p.Denied = v.Now.denied(report.DropFilter{Pod: p.Name}, maxHistory)
	v.Title, v.Template, v.Body = p.Name, "pod", p
	return err
}

// denied is the page of denied packets.
type denied struct {
	report.DropFilter
	Minutes  int
	Rows     []*report.DropSum
	NotShown uint64
	// Faults are ends that are unknown, and nodes whose history is missing or has a gap.
	Faults []string
}

// maxHistory is what the agents keep.
const maxHistory = 60

func (s *snapshot) denied(f report.DropFilter, minutes int) denied {
	last := time.Duration(minutes) * time.Minute
	sums := s.drops(f, last)
	d := denied{DropFilter: f, Minutes: minutes, Rows: sums.Sorted(), NotShown: sums.NotShown}
	if s.Fault == "" && f.Namespace != "" && !slices.ContainsFunc(s.Objects.Namespaces, func(n *corev1.Namespace) bool { return n.Name == f.Namespace }) {
		d.Faults = append(d.Faults, "there is no namespace "+f.Namespace+" now")
	}
	if namespace, name, _ := strings.Cut(f.Pod, "/"); s.Fault == "" && f.Pod != "" && s.pod(namespace, name) == nil {
		d.Faults = append(d.Faults, "there is no pod "+f.Pod+" now")
	}
	for _, n := range s.Nodes {
		switch {
		case n.Fault != "":
			d.Faults = append(d.Faults, n.Name+": "+n.Fault)
		case n.Drops.From.IsZero():
			d.Faults = append(d.Faults, n.Name+": no denied packet is known: "+cmp.Or(n.Drops.Fault, "the agent begins to look"))
		case n.Drops.Fault != "":
			d.Faults = append(d.Faults, n.Name+": denied packets are not reported now: "+n.Drops.Fault)
		case n.Drops.From.After(n.Now.Add(-last)):
			d.Faults = append(d.Faults, fmt.Sprintf("%s: not all that was denied before %s is known", n.Name, n.Drops.From.Local().Format(time.TimeOnly)))
		}
	}
	return d
}

func deniedPage(v *view, _ *server, r *http.Request) error {
	q := r.URL.Query()
	f := report.DropFilter{Pod: q.Get("pod"), Namespace: q.Get("namespace"), Direction: q.Get("direction")}
	minutes, err := strconv.Atoi(cmp.Or(q.Get("minutes"), strconv.Itoa(maxHistory)))
	if err != nil || minutes < 1 || minutes > maxHistory {
		return usage{fmt.Errorf("minutes=%q: must be from 1 to %d", q.Get("minutes"), maxHistory)}
	}
	if err := f.Check(); err != nil {
		return usage{err}
	}
	v.Title, v.Template, v.Live, v.Body = "denied packets", "denied", true, v.Now.denied(f, minutes)
	return nil
}

func policiesPage(v *view, _ *server, _ *http.Request) error {
	v.Title, v.Template, v.Body = "policies", "policies", v.Now.policies()
	return nil
}

// writeReport writes the file of --once.
func writeReport(ctx context.Context, w io.Writer, now *snapshot) error {
	style, err := assets.ReadFile("assets/style.css")
	if err != nil {
		return err
	}
	v := view{Title: "report", Now: now, Health: now.health(), Once: true, Style: template.CSS(style), Template: "report"} //nolint:gosec // our own file
	body := struct {
		Matrix   matrixPage
		Problems []string
		Denied   denied
		Rules    policies
		Reach    *reachAnswer
		Evidence preview.Evidence
	}{Problems: now.problems(), Denied: now.denied(report.DropFilter{}, maxHistory), Rules: now.policies()}
	if now.Fault == "" {
		body.Matrix = now.matrixOf("class", "", "", nil)
		if body.Reach, err = now.answer(ctx, "", "", model.PortRange{}); isUsage(err) {
			body.Reach = &reachAnswer{Reach: &preview.Reach{}, Note: "Not listed: " + err.Error()}
		} else if err != nil {
			return err
		}
		if body.Evidence, err = preview.EvidenceOf(now.Objects); err != nil {
			return err
		}
	}
	v.Body = body
	var text bytes.Buffer
	if err := parsed(func(string) string { return "" }).ExecuteTemplate(&text, "page", v); err != nil {
		return err
	}
	_, err = io.WriteString(w, printable.Lines(text.String()))
	return err
}
