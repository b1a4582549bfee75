//go:build !linux

package preview

// nodeObjects stay empty: only Linux has a node's state.
type nodeObjects = []struct{}
