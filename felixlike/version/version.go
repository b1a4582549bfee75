// Package version tells what this binary was built from, as the Go toolchain
// recorded it. It is tested by its form.
package version

import (
	"runtime"
	"runtime/debug"
)

// unknown is the version of a binary that was built outside version control.
const unknown = "unknown"

// String returns the version of the module, which names the commit unless it
// is a release, and that of Go: "v0.3.0 (go1.26.8)". "+dirty" tells of changes
// that were not committed.
func String() string {
	return moduleVersion() + " (" + runtime.Version() + ")"
}

func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return unknown
	}
	return info.Main.Version
}
