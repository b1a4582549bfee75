package policytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/model"
)

// Form says how an expectation is written.
const Form = `FROM -> TO [PORTS]: allow|deny, or: no pod [in|outside ENDS] reaches TO [PORTS]`

// statement says what becomes of packets.
type statement struct {
	text     string
	field    string
	from, to side
	// ports are all if there are none.
	ports []model.PortRange
	allow bool
}

// side is the sources or the destinations.
type side struct {
	set *preview.Set
	// named are the sets that its words name. Each must have an end.
	named map[string]*preview.Set
	// all says that it is everything, rest that it is what is left by the statements above. possible adds pods that could exist.
	all, rest, possible bool
}

// statements reads the expectations of a test.
func (t *Test) statements(w *preview.World) ([]statement, error) {
	var all []statement
	var errs []error
	for i, raw := range t.Spec.Expect {
		field := fmt.Sprintf("spec.expect[%d]", i)
		line, err := textOf(raw)
		if err != nil {
			errs = append(errs, t.fault(field, "%v", err))
			continue
		}
		for _, text := range strings.Split(line, ";") {
			s := statement{text: strings.Join(strings.Fields(text), " "), field: field}
			if err := s.parse(w); err != nil {
				errs = append(errs, t.fault(field, "%q: %v", s.text, err))
			}
			all = append(all, s)
		}
	}
	return all, errors.Join(errs...)
}

// textOf returns the text of an expectation.
func textOf(raw json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts map[string]string
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) != 1 {
		return "", errors.New("must be a text: " + Form)
	}
	for ends, verdict := range parts {
		text = ends + ": " + verdict
	}
	return text, nil
}

func (s *statement) parse(w *preview.World) error {
	from, to, arrow := strings.Cut(s.text, " -> ")
	if rest, no := strings.CutPrefix(s.text, "no pod "); no {
		scope, target, reaches := strings.Cut(" "+rest, " reaches ")
		from, to, arrow = "any pod"+scope, target+": deny", reaches
	}
	to, verdict, cut := cutLast(to, ": ")
	switch s.allow = verdict == "allow"; {
	case !arrow || !cut:
		return errors.New("must be " + Form)
	case !s.allow && verdict != "deny":
		return fmt.Errorf("%q: must be allow or deny", verdict)
	}
	to, err := s.cutPorts(to)
	if err != nil {
		return err
	}
	if s.from, err = parseSide(w, from); err != nil {
		return err
	}
	s.to, err = parseSide(w, to)
	return err
}

// cutPorts reads the ports at the end of a text, and returns the text without them.
func (s *statement) cutPorts(text string) (string, error) {
	ends, last, cut := cutLast(text, " ")
	ports, err := parsePorts(last)
	if !cut || err != nil {
		return text, nil
	}
	s.ports = ports
	if others, but := strings.CutSuffix(ends, " all but"); but {
		if ends, s.ports = others, preview.Complement(ports); len(s.ports) == 0 {
			return "", fmt.Errorf("%q: these are all ports", last)
		}
	}
	return ends, nil
}

// cutLast cuts a text around the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}

// parsePorts reads ports as in "80/tcp,8000-8100/udp,sctp,8/icmp".
func parsePorts(text string) ([]model.PortRange, error) {
	var all []model.PortRange
	for _, one := range strings.Split(text, ",") {
		numbers, name, both := strings.Cut(one, "/")
		if !both {
			numbers, name = "", one
		}
		protocol, err := model.ICMP, error(nil)
		if name != "icmp" {
			protocol, err = model.ParseProtocol(strings.ToUpper(name))
		}
		if err != nil || name != strings.ToLower(name) {
			return nil, fmt.Errorf("%q: no ports", one)
		}
		first, last, ranged := strings.Cut(numbers, "-")
		if !ranged {
			last = first
		}
		r := model.PortRange{Protocol: protocol, First: 1, Last: 65535}
		if protocol.IsICMP() {
			r.First = 0
		}
		if both {
			low, err := strconv.ParseUint(first, 10, 16)
			high, err2 := strconv.ParseUint(last, 10, 16)
			if err != nil || err2 != nil || low > high || low < uint64(r.First) || protocol.IsICMP() && high > 255 {
				return nil, fmt.Errorf("%q: no ports", one)
			}
			if protocol.IsICMP() { // the types, with all codes
				low, high = low<<8, high<<8|255
			}
			r.First, r.Last = uint16(low), uint16(high)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b model.PortRange) int { return int(a.First) - int(b.First) })
	return all, nil
}

// parseSide reads ends: several with "or" between them, and "except" before those that are left out.
func parseSide(w *preview.World, text string) (side, error) {
	s := side{named: map[string]*preview.Set{}}
	of, without, except := strings.Cut(text, " except ")
	switch {
	case of == "everything" || of == "everything else":
		s.all, s.rest = true, of == "everything else"
		s.set = w.All()
	case of == "any pod" || strings.HasPrefix(of, "any pod "):
		s.possible, s.set = true, w.Pods()
		rest, outside, cut := strings.Cut(strings.TrimPrefix(of, "any pod"), " outside ")
		if cut && !except {
			without, except = outside, true
		} else if cut {
			return s, fmt.Errorf("%q: either outside or except", text)
		}
		if scope, in := strings.CutPrefix(rest, " in "); in {
			set, err := s.union(w, scope)
			if err != nil {
				return s, err
			}
			s.set = s.set.And(set)
		} else if rest != "" {
			return s, fmt.Errorf("%q: must be any pod, any pod in ENDS or any pod outside ENDS", text)
		}
	default:
		var err error
		if s.set, err = s.union(w, of); err != nil {
			return s, err
		}
	}
	if except {
		set, err := s.union(w, without)
		if err != nil {
			return s, err
		}
		s.set = s.set.Except(set)
	}
	if s.possible {
		s.set = w.WithHosts(s.set)
	}
	return s, nil
}

// union reads ends with "or" between them.
func (s *side) union(w *preview.World, text string) (*preview.Set, error) {
	all := w.None()
	for _, name := range strings.Split(text, " or ") {
		name = strings.TrimSpace(name)
		for _, word := range []string{"ns ", "namespace "} {
			if rest, is := strings.CutPrefix(name, word); is {
				name = "namespace:" + rest
			}
		}
		if name == "" {
			return nil, errors.New("an end is missing")
		}
		set, err := w.Set(name)
		if err != nil {
			return nil, err
		}
		// A prefix that is left out may have no address outside, and no pod may exist yet that labels select.
		labels := strings.HasPrefix(name, "pods:") || strings.HasPrefix(name, "namespaces:")
		if (s.set == nil || !set.OfAddresses()) && (!s.possible || !labels) {
			s.named[name] = set
		}
		all = all.Or(set)
	}
	return all, nil
}
