package iptables

// Prefix begins the name of every chain of ours in the kernel, so that all of
// them are known by their names; those of sets begin with it too.
const Prefix = "flx-"

// MaxName is how long the name of a chain may be: xtables takes 28 characters,
// with the prefix.
const MaxName = 28 - len(Prefix)

// KernelName returns the name that a chain has in the kernel.
func KernelName(name string) string { return Prefix + name }
