//go:build !linux

package health

// holder returns "": the question is Linux'. No agent runs elsewhere, but felixctl has this package.
func holder(string) string { return "" }
