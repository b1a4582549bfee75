package migrate

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSelectors: the alternatives of a selector, as label selectors of Kubernetes.
func TestSelectors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "all",
		"all()":                             "all",
		"!all()":                            "none",
		"a == 'x'":                          "a=x",
		`a != "x"`:                          "a notin (x)",
		"has(a) && !has(b/c)":               "a,!b/c",
		"a in {'x', 'y'} || b not in {'z'}": "a in (x,y) | b notin (z)",
		"!(a == 'x' && has(b))":             "a notin (x) | !b",
		"!(a == 'x' || !has(b))":            "a notin (x),b",
		"!!has(a)":                          "a",
		"has(a) && (has(b) || has(c))":      "a,b | a,c",
		"has(a) || has(b) && has(c)":        "a | b,c",
		"a == 'x' && a == 'y'":              "a=x,a in (y)",
		"a-b.c/d_e == 'it-is'":              "a-b.c/d_e=it-is",
		"a contains 'x'":                    "error",
		"a starts with 'x'":                 "error",
		"global()":                          "error",
		"a == x":                            "error",
		"a in {}":                           "error",
		"a in {'x' 'y'}":                    "error",
		"a == 'x":                           "error",
		"(has(a)":                           "error",
		"has(a) has(b)":                     "error",
		"has('a')":                          "error",
		"a = 'x'":                           "error",
		"&&":                                "error",
		"!":                                 "error",
	} {
		got := "error"
		if e, err := parseSelector(text); err == nil {
			terms, err := e.terms(false)
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, term := range terms {
				all = append(all, metav1.FormatLabelSelector(term.selector()))
			}
			got = strings.Join(all, " | ")
			switch got {
			case "<none>":
				got = "all"
			case "":
				got = "none"
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestSelectorBound: a selector with too many alternatives is an error, not a flood of objects.
func TestSelectorBound(t *testing.T) {
	var all []string
	for i := range 6 {
		all = append(all, fmt.Sprintf("(has(a%d) || has(b%d))", i, i))
	}
	e, err := parseSelector(strings.Join(all, " && "))
	if err != nil {
		t.Fatal(err)
	}
	if terms, err := e.terms(false); err == nil {
		t.Errorf("%d terms", len(terms))
	}
}

// TestMatches: the labels of a set of networks are matched as Calico does.
func TestMatches(t *testing.T) {
	for text, want := range map[string]bool{
		"a == 'x'": true, "a != 'x'": false, "b != 'x'": true, "has(a)": true, "!has(a)": false, "a in {'y','x'}": true, "b in {'x'}": false, "!all()": false,
	} {
		e, err := parseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		terms, err := e.terms(false)
		if err != nil || matches(terms, map[string]string{"a": "x"}) != want {
			t.Errorf("%s: %v %v", text, !want, err)
		}
	}
}
