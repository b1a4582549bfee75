// Package install puts the CNI plugins and their configuration on a node, and
// removes everything that felixlike has left on a node.
//
// It owns the record of its files (Record), so that it never overwrites or removes
// files of others. It knows the names of the other packages' leftovers, and nothing
// of policy. Files are tested in temporary folders, the rest in network namespaces
// with a real switch.
package install
