// Package report prints the agent's status and configuration for people
// (aligned tables) and programs (JSON, YAML). It holds no state and does no
// I/O but writing; it is tested by its text.
package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// ErrFaults is the error of commands that have shown faults: a status that is not Ready, for example. It becomes exit code 1.
var ErrFaults = errors.New("faults were found")

// Ready reports whether the desired state is programmed and traffic passes: the datastore was read, the last
// apply succeeded, nothing is pending, nothing is quarantined, and the readiness probe succeeds.
func Ready(s control.Status) bool {
	return s.InSync && s.LastApply.Error == "" && s.Programmed >= s.Observed && len(s.Quarantined) == 0 && len(s.Unready) == 0
}

// outages are why the readiness probe fails although all is known and programmed.
func outages(s control.Status) []string {
	if !s.InSync || s.LastApply.Error != "" {
		return nil // said in other words
	}
	return s.Unready
}

// Ready is as the function of that name; a strict filter also wants no problems of objects.
func (f Filter) Ready(s control.Status) bool { return Ready(s) && (!f.Strict || len(s.Problems) == 0) }

// Config prints settings with their origins. If an agent runs, it also prints the value in use of settings
// such as auto.
func Config(w io.Writer, rows []config.Row, running *control.Status, format terminal.Output) error {
	if running != nil && running.Underlay != nil {
		use := inUse(*running.Underlay)
		for i := range rows {
			if value := use[rows[i].Key]; value != rows[i].Value {
				rows[i].InUse = value
			}
		}
	}
	return format.Print(w, rows, func() error {
		t := terminal.NewTable(terminal.StyleFor(w), "SETTING", "VALUE", "FROM", "IN USE")
		for _, r := range rows {
			t.Row(r.Key, r.Value, r.Origin, r.InUse)
		}
		_, err := fmt.Fprintln(w, t)
		return err
	})
}

// inUse returns the values that the agent has found, by setting.
func inUse(u control.Underlay) map[string]string {
	use := map[string]string{"datapath": u.Datapath}
	if u.MTU != 0 {
		use["uplink"], use["mtu"] = u.Uplink, strconv.Itoa(u.MTU)
	}
	return use
}

// Status prints an agent's status, as far as the filter chooses.
func Status(w io.Writer, whole control.Status, f Filter, format terminal.Output) error {
	s := f.Apply(whole)
	if format == terminal.Name {
		return terminal.PrintNames(w, names(s))
	}
	return format.Print(w, s, func() error {
		t := &text{style: format.Style(w)}
		t.verdict(whole, f.Ready(whole))
		t.summary(s)
		t.endpoints(s, f)
		t.policies(s)
		t.quarantined(s)
		t.repairs(s)
		t.problems(s)
		_, err := io.WriteString(w, t.String())
		return err
	})
}

// text is a status as it is printed.
type text struct {
	strings.Builder
	style terminal.Style
}

func (t *text) summary(s control.Status) {
	fmt.Fprintf(t, "node %s   backend %s   datastore %s   pid %d   up %s\n", s.Node, s.Backend, s.Datastore, s.PID,
		time.Since(s.StartedAt).Round(time.Second))
	fmt.Fprintf(t, "in sync %s   revision %d programmed of %d   last apply %s in %s\n", t.yesNo(s.InSync), s.Programmed, s.Observed,
		s.LastApply.At.Format(time.TimeOnly), s.LastApply.Duration.Round(10*time.Microsecond))
	health := s.Health
	if health == "" {
		health = "off"
	}
	fmt.Fprintf(t, "version %s   probes and metrics %s\n", s.AgentVersion, health)
	if u := s.Underlay; u != nil {
		t.underlay(*u)
	}
	if l := s.Layout; l != nil {
		fmt.Fprintf(t, "layout %s", l.InForce)
		if l.GrantsBound > 0 {
			fmt.Fprintf(t, "   grants %d of at most %d   pods in maps %d", l.Grants, l.GrantsBound, l.Pods)
		}
		fmt.Fprintln(t)
	}
	if h := s.Handover; h != nil {
		fmt.Fprintf(t, "changing the backend to %s for %s: %s %s\n", h.To, time.Since(h.Since).Round(time.Millisecond), h.Phase, h.Error)
	}
	if s.LastApply.Error != "" {
		fmt.Fprintf(t, "%s: %s\n", t.style.Bad("LAST APPLY FAILED"), strings.ReplaceAll(s.LastApply.Error, "\n", "\n  "))
	}
	for _, r := range s.Running {
		fmt.Fprintf(t, "applying %s for %s\n", r.Stage, time.Since(r.Since).Round(10*time.Microsecond))
	}
	if len(s.Flows) > 0 {
		fmt.Fprintf(t, "flows in the bridge: %s\n", counts(s.Flows))
	}
	t.existing(s.ExistingConnections)
	if s.Offload != nil {
		t.offload(*s.Offload)
	}
	if s.Hosts != nil {
		t.hosts(*s.Hosts)
	}
	if s.Staged != nil {
		t.staged(*s.Staged)
	}
	if s.Verify != nil {
		t.verify(*s.Verify)
	}
	fmt.Fprintf(t, "writes since start: %s   groups %d\n\n", counts(s.Writes), s.Groups)
}

// existing prints what happens to established connections that policy denies now.
func (t *text) existing(e control.ExistingConnections) {
	if e.Mode == "" {
		return
	}
	fmt.Fprintf(t, "existing connections: %s", e.Mode)
	if e.Mode == config.Revalidate {
		fmt.Fprintf(t, "   ended since start %d   changes not looked at %d", e.Ended, e.Pending)
	}
	fmt.Fprintln(t)
	if w := e.Running; w != nil {
		fmt.Fprintf(t, "  looking for %s: %d of %d connections looked at, %d ended\n", w.Took.Round(time.Millisecond), w.Looked, w.Of, w.Ended)
	}
	if w := e.Last; w != nil {
		fmt.Fprintf(t, "  last look at %s in %s: %d connections of %d pod addresses looked at, %d denied, %d ended %s\n",
			w.At.Format(time.TimeOnly), w.Took.Round(time.Millisecond), w.Looked, w.Pods, w.Denied, w.Ended, w.Error)
	}
}

// hosts prints the policies of the node itself.
func (t *text) hosts(h control.Hosts) {
	state := h.State
	switch state {
	case control.HostsNone:
	case control.HostsConfirmed:
		state += "   wanted: " + strings.Join(h.Policies, ", ")
	default:
		state = t.style.Bad(state) + "   wanted: " + cmp.Or(strings.Join(h.Policies, ", "), "none")
	}
	fmt.Fprintf(t, "policies of the node itself: %s\n", state)
	switch h.State {
	case control.HostsWithdrawn:
		fmt.Fprintf(t, "  withdrawn: %s   in force: %s\n", strings.Join(h.Withdrawn, ", "), cmp.Or(strings.Join(h.Confirmed, ", "), "none"))
	case control.HostsOff:
		fmt.Fprintln(t, "  in force: none")
	case control.HostsNotProgrammed:
		fmt.Fprintln(t, "  in force: not known")
	}
	if h.Reason != "" {
		fmt.Fprintf(t, "  %s\n", h.Reason)
	}
	fmt.Fprintf(t, "  failsafe ports in: %s   out: %s\n", strings.Join(h.FailsafeIn, ", "), strings.Join(h.FailsafeOut, ", "))
}

// offload prints whether packets of established connections skip the host.
func (t *text) offload(o control.Offload) {
	switch {
	case o.Active:
		fmt.Fprintln(t, "offload: "+o.Setting+"   the bridge switches established connections")
	case o.Why != "":
		fmt.Fprintf(t, "offload: %s   no effect: %s\n", o.Setting, o.Why)
	default:
		fmt.Fprintln(t, "offload: "+o.Setting)
	}
}

// underlay prints the node's network as the agent has found it.
func (t *text) underlay(u control.Underlay) {
	if u.TrafficMode == model.PolicyOnly {
		fmt.Fprintf(t, "traffic mode %s: another CNI plugin owns the pods' interfaces\n", u.TrafficMode)
		return
	}
	datapath := "datapath " + u.Datapath
	if u.Datapath == "netdev" {
		datapath += " (USERSPACE)"
	}
	fmt.Fprintf(t, "%s: %s\n", datapath, u.DatapathWhy)
	switch {
	case u.TrafficMode == model.WireGuard:
		fmt.Fprintf(t, "encryption %s: UDP port %d   public key of this node %s\n", u.TrafficMode, u.WireGuardPort, u.PublicKey)
	case u.TrafficMode != model.Encap:
		fmt.Fprintf(t, "traffic mode %s\n", u.TrafficMode)
	}
	if u.MTU != 0 {
		fmt.Fprintf(t, "uplink %s: %s   mtu of pods %d: %s\n", u.Uplink, u.UplinkWhy, u.MTU, u.MTUWhy)
	}
}

// counts names each receiver with its number.
func counts(of map[string]int) string {
	var all []string
	for _, receiver := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s %d", receiver, of[receiver]))
	}
	return strings.Join(all, ", ")
}

func (t *text) endpoints(s control.Status, f Filter) {
	if len(s.Endpoints) == 0 {
		none := "no pods on this node"
		if f != (Filter{}) {
			none = "no such pods on this node"
		}
		fmt.Fprintln(t, none)
		return
	}
	closed := false
	var table *terminal.Table
	for _, show := range []func(policies []string) string{named, numbered} {
		table = terminal.NewTable(t.style, "POD", "STATE", "INTERFACE", "ADDRESSES", "INGRESS", "EGRESS")
		for _, e := range s.Endpoints {
			closed = closed || e.Reason != ""
			table.Row(
				e.Namespace+"/"+e.Name, t.state(e.State), e.Interface, strings.Join(e.Addresses, " "),
				policies(e.State, e.IngressPolicies, show), policies(e.State, e.EgressPolicies, show),
			)
		}
		if table.Fits() {
			break
		}
	}
	fmt.Fprintln(t, table)
	if !closed {
		return
	}
	fmt.Fprintln(t, "\nclosed pods (all their traffic is dropped):")
	for _, e := range s.Endpoints {
		if e.Reason != "" {
			fmt.Fprintf(t, "  %s/%s: %s\n", e.Namespace, e.Name, e.Reason)
		}
	}
}

func (t *text) policies(s control.Status) {
	if len(s.Policies) == 0 {
		return
	}
	fmt.Fprintln(t)
	table := terminal.NewTable(t.style, "POLICY", "TIER", "INGRESS RULES", "EGRESS RULES", "PODS HERE")
	for _, p := range s.Policies {
		tier := model.TierNetworkPolicy
		if p.Tier != tier.String() {
			tier = model.TierAdmin // the names of ClusterNetworkPolicies do not say which
		}
		id := model.PolicyID{Tier: tier, API: p.API, Namespace: p.Namespace, Name: p.Name, Part: p.Part, Within: p.Within}
		table.Row(id.String(), p.Tier, p.IngressRules, p.EgressRules, p.Endpoints)
	}
	fmt.Fprintln(t, table)
}

// quarantined prints the quarantined objects: one line of facts and one of reason each, since reasons are
// long.
func (t *text) quarantined(s control.Status) {
	if len(s.Quarantined) == 0 {
		return
	}
	fmt.Fprintf(t, "\nquarantined (%d); everything else is programmed:\n", len(s.Quarantined))
	table := terminal.NewTable(t.style, "  OBJECT", "OF", "PODS CLOSED", "SINCE", "TRIES", "NEXT TRY")
	for _, q := range s.Quarantined {
		table.Row(
			"  "+q.Stage+" "+q.Object(), owners(q), len(q.Pods), q.Since.Format(time.TimeOnly), q.Attempts, nextTry(q),
		)
	}
	fmt.Fprintln(t, table)
	for _, q := range s.Quarantined {
		what := q.Name
		if q.Rule != "" {
			what += ", " + q.Rule
		}
		fmt.Fprintf(t, "  %s: %s\n", what, q.Reason)
	}
}

func nextTry(q control.Quarantined) string {
	if q.NextTry.IsZero() {
		return "once changed"
	}
	return q.NextTry.Format(time.TimeOnly)
}

// owners names the source objects of a quarantined object.
func owners(q control.Quarantined) string {
	switch len(q.Owners) {
	case 0:
		return q.Description
	case 1:
		return q.Owners[0].String()
	}
	return fmt.Sprintf("%s and %d more", q.Owners[0], len(q.Owners)-1)
}

func (t *text) repairs(s control.Status) {
	if s.Repairs.Total == 0 {
		return
	}
	fmt.Fprintf(t, "\nforeign changes undone: %d since start; the newest:\n", s.Repairs.Total)
	table := terminal.NewTable(t.style, "  AT", "OBJECT", "WHAT", "BY", "TOOK")
	for _, r := range s.Repairs.Last {
		by := r.By
		if by == "" {
			by = "unknown"
		}
		table.Row(
			"  "+r.At.Format(time.DateTime), r.Stage+" "+r.Kind+" "+r.Name, r.What, by, r.Took.Round(10*time.Microsecond).String(),
		)
	}
	fmt.Fprintln(t, table)
}

func (t *text) problems(s control.Status) {
	if len(s.Problems) == 0 {
		return
	}
	fmt.Fprintf(t, "\nproblems (%d):\n", len(s.Problems))
	for _, p := range s.Problems {
		fmt.Fprintf(t, "  %s\n", p.Error())
	}
}

// named and numbered show policies; a narrow terminal has no room for their names.
func named(policies []string) string { return strings.Join(policies, " ") }

func numbered(policies []string) string {
	if len(policies) == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", len(policies))
}

// policies shows a direction's list of policies. Without policies it is open, but only a programmed
// pod is: before that, its policies may not have been read.
func policies(state string, list []string, show func([]string) string) string {
	switch {
	case len(list) > 0:
		return show(list)
	case state == control.EndpointProgrammed:
		return "open"
	}
	return "-"
}

func (t *text) yesNo(b bool) string {
	if b {
		return "yes"
	}
	return t.style.Bad("NO")
}
