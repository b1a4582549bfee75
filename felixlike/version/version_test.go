package version

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestString(t *testing.T) {
	form := regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+\S* \(go[0-9].*\)$`)
	if s := String(); !form.MatchString(s) {
		t.Errorf("version %q", s)
	}
}

// TestBuilds: a build without version control knows a version, and one that is given a
// version has that.
func TestBuilds(t *testing.T) {
	const pkg = "github.com/felixlike/felixlike/felixlike/version"
	dir := t.TempDir()
	source := "package main\n\nimport (\n\t\"fmt\"\n\n\t\"" + pkg + "\"\n)\n\nfunc main() { fmt.Print(version.Program()) }\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flags, want string }{
		{"", strings.TrimSpace(next)},
		{"-X " + pkg + ".linked=v7.8.9", "v7.8.9"},
	} {
		// A file outside of the module is a main package of its own, without a version.
		out, err := exec.Command("go", "run", "-buildvcs=false", "-ldflags", c.flags, filepath.Join(dir, "main.go")).CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("with -ldflags %q: %q, %v; want %q", c.flags, out, err, c.want)
		}
	}
}

func TestSkew(t *testing.T) {
	for _, c := range []struct {
		a, b            string
		same, supported bool
	}{
		{"v0.1.0", "v0.1.0 (go1.26.8)", true, true},
		{"v0.1.0", "v0.1.1", false, true},
		{"v0.2.0-dev+abc", "v0.1.9", false, true},
		{"v0.1.0", "v0.3.0", false, false},
		{"v1.0.0", "v0.9.0", false, false},
		{"unknown (go1.26.8)", "v0.1.0", false, false},
		{"unknown", "unknown", true, true},
	} {
		if same, supported := Skew(c.a, c.b); same != c.same || supported != c.supported {
			t.Errorf("%s and %s: same %v, supported %v", c.a, c.b, same, supported)
		}
	}
}
