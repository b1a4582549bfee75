package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// session is a command of a page, and the lines that the page shows of its output.
type session struct {
	command string
	lines   []string
}

// sessionsOf returns the sessions in a page's blocks of the language console, but for commands that prepare the shell.
func sessionsOf(t *testing.T, page string) (all []session) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		shown := false
		for line := range strings.Lines(block[1]) {
			line = strings.TrimRight(line, "\n")
			if command, is := strings.CutPrefix(line, "$ "); is {
				if shown = strings.HasPrefix(command, "felixctl "); shown {
					all = append(all, session{command: command})
				}
			} else if shown && line != "" && strings.TrimSpace(line) != "..." {
				last := &all[len(all)-1]
				last.lines = append(last.lines, line)
			}
		}
	}
	return all
}

// withoutTimes replaces what differs from run to run.
func withoutTimes(text string) string {
	text = regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(ms|µs|s)\b`).ReplaceAllString(text, "TIME")
	return regexp.MustCompile(`sha256 [0-9a-f]+`).ReplaceAllString(text, "sha256 DIGEST")
}

// TestTutorial types the commands of docs/start/tutorial.md in a lab. They print what the page shows, in this order.
func TestTutorial(t *testing.T) {
	needLab(t)
	t.Parallel()
	name := fmt.Sprintf("tutorial-%d", os.Getpid())
	t.Cleanup(func() { labNamed(t, name)(0, "down", "--ignore-not-found") })
	all := sessionsOf(t, "../../docs/start/tutorial.md")
	if len(all) < 10 {
		t.Fatalf("%d commands", len(all))
	}
	for _, s := range all {
		command := strings.ReplaceAll(s.command, "tour", name)
		// A probe is blocked after a second without an answer, which a busy machine can need: it gets more tries.
		tries := 1
		if strings.Contains(command, " lab probe ") {
			tries = 3
		}
		for ; ; tries-- {
			missing, out := s.run(t, name, command)
			if missing == "" {
				break
			}
			if tries == 1 {
				t.Errorf("$ %s\nprints, where the page has %q:\n%s", s.command, missing, out)
				break
			}
		}
	}
}

// run runs a command in the lab, and returns the first line of the page that it does not print.
func (s session) run(t *testing.T, lab, command string) (missing, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "PATH="+buildDir+":"+os.Getenv("PATH"), "FELIXCTL_LAB="+lab)
	printed, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", command, err)
	}
	rest := withoutTimes(strings.ReplaceAll(string(printed), lab, "tour"))
	for _, line := range s.lines {
		_, after, found := strings.Cut(rest, withoutTimes(line)+"\n")
		if !found {
			return line, string(printed)
		}
		rest = after
	}
	return "", string(printed)
}
