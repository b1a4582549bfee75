package strict

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
)

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []Fault
	}{
		{"nothing wrong", `{"spec":{"podSelector":{},"policyTypes":["Ingress"]}}`, nil},
		{"unknown field", `{"spec":{"podSelector":{},"ingress":[{"from":[{"sni":"x"}]}]}}`, []Fault{{"spec.ingress[0].from[0].sni", "unknown field"}}},
		{"field of another case", `{"spec":{"podselector":{}}}`, []Fault{{"spec.podselector", "unknown field"}}},
		{"given twice", `{"spec":{"podSelector":{},"podSelector":{}}}`, []Fault{{"spec.podSelector", "duplicate field"}}},
		{"wrong type", `{"spec":{"podSelector":[]}}`, []Fault{{"spec.podSelector", "wrong type: got array, want an object"}}},
		{"list", `{"spec":{"ingress":{}}}`, []Fault{{"spec.ingress", "wrong type: got object, want a list"}}},
		{"text", `{"spec":{"podSelector":{"matchLabels":{"app":true}}}}`, []Fault{{"spec.podSelector.matchLabels", "wrong type: got bool, want a string" + QuoteHint}}},
		{"no JSON", `{`, []Fault{{"", "unexpected end of JSON input"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Decode([]byte(c.text), &networkingv1.NetworkPolicy{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSelector(t *testing.T) {
	for text, understood := range map[string]bool{
		`{"podSelector":{}}`:                            true,
		`{"podSelector":{"matchLabels":{"app":"a"}}}`:   true,
		`{"podSelector":{"matchLabels":{"app":"a b"}}}`: false,
		`{"podSelector":{"matchNames":["a"]}}`:          false,
		`{"podSelector":[]}`:                            false,
		`{}`:                                            false,
		`[]`:                                            false,
		``:                                              false,
	} {
		if s := Selector(json.RawMessage(text)); (s != nil) != understood {
			t.Errorf("%s: %v", text, s)
		}
	}
}
