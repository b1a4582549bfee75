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
	text = regexp.MustCompile(`\b\d+(\.\d+)?(ms|µs|s)\b`).ReplaceAllString(text, "TIME")
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
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		cmd := exec.CommandContext(ctx, "bash", "-c", command)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "PATH="+buildDir+":"+os.Getenv("PATH"), "FELIXCTL_LAB="+name)
		out, err := cmd.Output()
		cancel()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatalf("%s: %v", command, err)
		}
		rest := withoutTimes(strings.ReplaceAll(string(out), name, "tour"))
		for _, line := range s.lines {
			_, after, found := strings.Cut(rest, withoutTimes(line)+"\n")
			if !found {
				t.Errorf("$ %s\nprints, where the page has %q:\n%s", s.command, line, out)
				break
			}
			rest = after
		}
	}
}
