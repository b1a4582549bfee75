// Package kubelab drives kubelab, a set of scripts that bring up a real
// Kubernetes (API server, kubelets, containerd, kube-proxy) in namespaces of
// this machine: it finds and builds the kit, brings a cluster up and down,
// and reaches into its nodes and pods.
//
// It knows nothing of felixlike. All state is kubelab's own, below the kit's
// work folder; only one cluster can be up at a time, so a Cluster holds a lock.
// The package is tested by the tests of test/cluster, which use all of it.
package kubelab
