package kubernetestest

import (
	"context"
	"fmt"
	"net"

	"k8s.io/client-go/kubernetes"

	"github.com/felixlike/felixlike/internal/namespace"
)

// Kubeconfig returns a kubeconfig for a client of that name, of a server at that address.
func Kubeconfig(client, address string) []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://%s"}}],
users: [{name: u, user: {token: %q}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`, address, client)
}

// ListenIn returns a server that listens at an address in a network namespace, and an administrator's client, which
// connects in that namespace too.
func ListenIn(ns *namespace.Namespace, address string) (s *Server, admin *kubernetes.Clientset, err error) {
	err = ns.Do(func() error {
		s, err = Listen(address)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	config := s.Config("admin")
	config.Dial = func(_ context.Context, network, address string) (conn net.Conn, err error) {
		err = ns.Do(func() error {
			conn, err = net.Dial(network, address)
			return err
		})
		return conn, err
	}
	admin, err = kubernetes.NewForConfig(config)
	return s, admin, err
}
