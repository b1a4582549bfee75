package version

import (
	"regexp"
	"testing"
)

func TestString(t *testing.T) {
	form := regexp.MustCompile(`^(unknown|v[0-9].*) \(go[0-9].*\)$`)
	if s := String(); !form.MatchString(s) {
		t.Errorf("version %q", s)
	}
}
