// Package kubelab brings up a real Kubernetes (API server, kubelets, containerd, kube-proxy) in
// namespaces of this machine, without Docker and systemd: it builds the programs, from Go modules and
// some Debian packages that are unpacked and not installed, brings a cluster up and down, and reaches into its nodes and pods. Most of the
// work is done by scripts; the program in tool makes certificates and image archives.
//
// It knows nothing of felixlike. All state is below one work folder, and all addresses are in
// network namespaces named kt-*; only one cluster can be up at a time, so a Cluster holds a lock.
// The package is tested by the tests of test/cluster, which use all of it.
package kubelab
