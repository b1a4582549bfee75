package ui

import (
	"fmt"
	"html/template"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/model"
)

// parsed returns the templates of the pages. pathOf returns the page of a pod, or "" for no link.
func parsed(pathOf func(name string) string) *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"podPath": pathOf, "ago": ago, "deniedBy": report.DeniedBy, "titled": model.TitledRule, "first": first, "others": others,
		"whyPath": func(d control.Drop) string {
			if pathOf(d.From.String()) == "" && pathOf(d.To.String()) == "" {
				return ""
			}
			return whyPath(d)
		},
		"allowPath": func(whyPath string) string { return whatIfPath + strings.TrimPrefix(whyPath, "/why") },
		"ports":     func(all []string) string { return strings.Join(all, " ") },
		"join":      func(all []string) string { return strings.Join(all, ", ") }, "count": preview.Count, "bars": bars, "args": args,
		"sum": func(of map[string]int) (n int) {
			for _, one := range of {
				n += one
			}
			return n
		},
		"rules": func(all []control.Policy) (n int) {
			for _, p := range all {
				n += p.IngressRules + p.EgressRules
			}
			return n
		},
	}).ParseFS(assets, "assets/*.html"))
}

// args makes the argument of a template, of names and values.
func args(pairs ...any) map[any]any {
	all := map[any]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

// podPath returns the path of the page of a pod, or "" if the name is of something else.
func podPath(name string) string {
	namespace, pod, is := strings.Cut(name, "/")
	if _, err := netip.ParsePrefix(name); err == nil || !is || strings.ContainsAny(name, " :") || strings.Contains(pod, "/") {
		return ""
	}
	return "/pod/" + url.PathEscape(namespace) + "/" + url.PathEscape(pod)
}

// whyPath returns the path of the page that traces a denied packet, or "" if felixctl trace cannot be asked about it.
func whyPath(d control.Drop) string {
	port := d.PortText()
	v6 := d.To.Address.Is6() && !d.To.Address.Is4In6()
	switch m := d.ICMP; {
	case m != nil && *m == echoRequest(v6):
		port = "icmp"
	case m != nil && !v6 && m.Type != 0:
		port = fmt.Sprintf("icmp/%d/%d", m.Type, m.Code)
	case d.Port == 0:
		return ""
	}
	q := url.Values{"port": {port}, "family": {"4"}}
	if v6 {
		q.Set("family", "6")
	}
	for name, e := range map[string]control.DropEnd{"from": d.From, "to": d.To} {
		if q.Set(name, e.String()); e.Node != "" {
			q.Set(name, "node:"+e.Node)
		}
	}
	return "/why?" + q.Encode()
}

// echoRequest is the message of ping in a family.
func echoRequest(v6 bool) control.ICMPType {
	if v6 {
		return control.ICMPType{Type: 128}
	}
	return control.ICMPType{Type: 8}
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return time.Since(t).Round(time.Second).String() + " ago"
}

// shown bounds the names that a list shows before it folds the others.
const shown = 6

func first(all []string) []string  { return all[:min(len(all), shown)] }
func others(all []string) []string { return all[min(len(all), shown):] }

// bar is one of a chart, of 60 columns and 24 rows.
type bar struct{ X, Y, Height int }

func bars(all []uint64) (out []bar) {
	const rows = 24
	most := max(slices.Max(all), 1)
	for i, n := range all {
		if h := int(n * rows / most); n > 0 {
			out = append(out, bar{i * 4, rows - max(h, 1), max(h, 1)})
		}
	}
	return out
}
