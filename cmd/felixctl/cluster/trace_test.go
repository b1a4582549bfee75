package cluster

import (
	"strings"
	"testing"
)

const question = "trace --from shop/web --to shop/db --port 80/tcp"

// traceAnswers makes n1 name both nodes, and n2 write its state.
func traceAnswers(t *testing.T) fakeKubectl {
	t.Helper()
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	k.answer(t, "n1", question+" --where --with", 0, []string{"n1", "n2"})
	k.answer(t, "n2", question+" --write-state --with", 0, `{"state": "of n2"}`)
	return k
}

// TestTraceWithoutAnswer: what is no verdict has the exit code 2, also if kubectl fails with 1 or reports success without output. The next node
// answers then, if it can.
func TestTraceWithoutAnswer(t *testing.T) {
	ask := func(t *testing.T, want int, texts ...string) {
		t.Helper()
		code, out := run(t.Context(), "", append([]string{"--all-nodes"}, strings.Fields(question)...)...)
		if code != want {
			t.Errorf("exit code %d, want %d\n%s", code, want, out)
		}
		expect(t, out, texts...)
	}
	with := question + " --with"
	t.Run("verdicts", func(t *testing.T) {
		k := traceAnswers(t)
		for _, code := range []int{0, 1, 3} {
			k.answer(t, "n1", with, code, "a \x1b[31mverdict\n")
			ask(t, code, "a ?[31mverdict")
		}
		k.answer(t, "n1", with, 2, "")
		ask(t, 2)
	})
	t.Run("kubectl fails", func(t *testing.T) {
		k := traceAnswers(t) // kubectl exec has no answer of n1, and ends with 1
		ask(t, 2, "no such answer")
		k.answer(t, "n2", with, 0, "by n2\n")
		ask(t, 0, "by n2")
	})
	t.Run("a change between the readings", func(t *testing.T) {
		k := traceAnswers(t)
		k.answer(t, "n1", with, 3, "they disagree\n")
		k.file(t, "agent-n1 "+strings.ReplaceAll(with, "/", "_")+".next", "they agree\n")
		ask(t, 0, "they agree")
	})
	t.Run("success without output", func(t *testing.T) {
		k := traceAnswers(t)
		k.answer(t, "n1", with, 0, "")
		ask(t, 2, "the answer is empty")
	})
	t.Run("an older agent", func(t *testing.T) {
		k := newFakeKubectl(t, pod("n1", ""))
		name := "agent-n1 " + strings.ReplaceAll(question, "/", "_") + " --where --with"
		k.answer(t, "n1", question+" --where --with", 2, "")
		k.file(t, name, "")
		k.file(t, name+".errors", "felixctl: unknown flag: --where\n")
		ask(t, 2, "node n1", "release", "--node n1")
	})
}

// TestTraceToService: the name of a Service is never a flag of kubectl.
func TestTraceToService(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""))
	for _, to := range []string{"service:db", "service:shop/", "service:/db", "service:shop/a/b", "service:shop/--server=http://192.0.2.1"} {
		if code, out := run(t.Context(), "", "--all-nodes", "trace", "--from=shop/web", "--to="+to, "--port=80/tcp"); code != 2 {
			t.Errorf("%s: exit code %d\n%s", to, code, out)
		}
	}
	_, _ = run(t.Context(), "", "--all-nodes", "trace", "--from=shop/web", "--to=service:shop/--server=x", "--port=80/tcp")
	if asked := k.asked(t); strings.Contains(asked, " --server") || !strings.Contains(asked, "get service/--server=x") {
		t.Errorf("kubectl was asked\n%s", asked)
	}
}
