// Package version has the version of this binary. It is tested by its form and by builds with and without a
// version.
package version

import (
	_ "embed"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// linked is the version that the build gives by -ldflags -X (deploy/version prints it).
var linked string

// next is the version of a build that says nothing, as go build without version control.
//
//go:embed VERSION
var next string

// String returns the version of the program and that of Go: "v0.3.0 (go1.26.8)". A version
// that is no release ends in "-dev", a commit or "+dirty".
func String() string { return Program() + " (" + runtime.Version() + ")" }

// Program returns the version of the program: the linker's, else that of the module as the
// Go toolchain recorded it, else the version under development.
func Program() string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return strings.TrimSpace(next)
	}
	return info.Main.Version
}

// Skew compares the versions of two programs: same reports that they are equal, supported
// that they are at most one minor version apart. a and b are results of String or Program.
func Skew(a, b string) (same, supported bool) {
	a, _, _ = strings.Cut(a, " ")
	b, _, _ = strings.Cut(b, " ")
	if a == b {
		return true, true
	}
	majorA, minorA, okA := release(a)
	majorB, minorB, okB := release(b)
	return false, okA && okB && majorA == majorB && max(minorA, minorB)-min(minorA, minorB) <= 1
}

// release returns major and minor of "v1.2.3-more".
func release(v string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(v, "v"), ".")
	second, _, found := strings.Cut(rest, ".")
	major, errMajor := strconv.Atoi(first)
	minor, errMinor := strconv.Atoi(second)
	return major, minor, found && errMajor == nil && errMinor == nil
}
