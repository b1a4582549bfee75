// Package examples carries the example cluster and policies, so that the demo
// runs from the binary alone. It holds no code; the demo and its test use it.
package examples

import "embed"

// Files are cluster.yaml and policies/*.yaml, which are meant to be applied in
// the order of their names.
//
//go:embed cluster.yaml policies/*.yaml
var Files embed.FS
