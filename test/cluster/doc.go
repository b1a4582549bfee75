// Package cluster tests felixlike as its users have it: installed by kubectl into a
// real Kubernetes cluster, with kubelets, containerd and kube-proxy, on nodes that are
// namespaces of this machine (package kubelab).
//
// It holds only tests. They build the image and use the manifests as they are in the
// tree, and skip, saying why, where no cluster can be brought up. Without settings one
// cluster with the default backend is tested, in a few minutes; Settings (settings_test.go)
// choose backends, modes of kube-proxy and the upstream specs or suite.
package cluster
