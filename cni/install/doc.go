// Package install puts on a node what the agent needs outside of its container:
// CNI plugins and their configuration; and it takes away everything that
// felixlike has left on a node.
//
// It owns the record of what it has put there (Record), so that nothing of others
// is overwritten or removed. It knows the names of what the other rooms leave
// behind, and of policy nothing. Files are tested in temporary folders, the rest
// in network namespaces with a real switch.
package install
