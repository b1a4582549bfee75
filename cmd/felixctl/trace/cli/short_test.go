package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestShort: the verdict, the rule of each end and the reason, in at most six lines of 80 columns; a contradiction and notes are not left out.
func TestShort(t *testing.T) {
	r := deniedResult()
	const want = `DENIED  shop/web -> shop/db-0 tcp/80
  egress: allowed, no policy isolates the pod
  ingress: denied, no rule of networkpolicy/shop/db allows it
  reason: ingress of shop/db-0: isolated by networkpolicy/shop/db, and no
    rule of theirs allows it
`
	short := func() string {
		var b strings.Builder
		if err := printShort(&b, []*result{r}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if diff := cmp.Diff(want, short()); diff != "" {
		t.Error(diff)
	}
	r.Policies.Ingress.Policy, r.Policies.Ingress.Rule, r.Policies.Ingress.RuleName = "networkpolicy/shop/db", "ingress[0]", "from-api"
	r.Why = strings.Repeat("a long reason ", 40)
	for _, c := range []struct{ note, disagreement, because, want string }{
		{disagreement: "it is allowed", because: "a firewall of another program drops it", want: "not as the policies say, because a firewall"},
		{want: "denied by networkpolicy/shop/db ingress[0] (from-api)"},
		{note: "ingress of shop/db is judged on n2, which " + strings.Repeat("gave no answer ", 9), want: "notes: 1, the first: ingress of shop/db is judged on n2"},
		{note: "x", disagreement: "it is allowed", want: "DISAGREEMENT"},
	} {
		r.Notes, r.Disagreement, r.Because = nil, c.disagreement, c.because
		if c.note != "" {
			r.Notes = []string{c.note}
		}
		out := short()
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if len(lines) > 6 || !strings.Contains(out, c.want) {
			t.Errorf("%d lines, want at most 6 and %q:\n%s", len(lines), c.want, out)
		}
		for _, l := range lines {
			if len(l) > shortWidth {
				t.Errorf("%d columns: %q", len(l), l)
			}
		}
	}
}
