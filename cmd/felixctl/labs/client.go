package labs

import (
	"context"
	"fmt"
	"net/http"

	"github.com/felixlike/felixlike/internal/socketapi"
)

// APIVersion is the version of a supervisor's API.
const APIVersion = "v1"

// StatusPath is the path of a supervisor's Status.
const StatusPath = "/" + APIVersion + "/status"

// Client asks a lab's supervisor.
type Client struct {
	name string
	api  *socketapi.Client
}

// NewClient returns a client for the lab of that name below root.
func NewClient(root, name string) *Client {
	return &Client{name: name, api: socketapi.NewClient(Socket(root, name))}
}

// Status returns the lab's status.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.Do(ctx, http.MethodGet, StatusPath, nil, &s)
}

// Do sends a request with a body, if there is one, and reads the answer into out, if
// that is not nil.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	err := c.api.Call(ctx, method, path, nil, in, out)
	switch {
	case socketapi.NotRunning(err):
		return fmt.Errorf("lab %s does not run (felixctl lab up makes one)", c.name)
	case err != nil:
		return fmt.Errorf("lab %s: %w", c.name, err)
	}
	return nil
}

// Node returns the state of a node, by its name or that of its folder.
func (c *Client) Node(ctx context.Context, node string) (NodeStatus, error) {
	s, err := c.Status(ctx)
	if err != nil {
		return NodeStatus{}, err
	}
	for _, n := range s.Nodes {
		if NodeFolder(n.Name) == NodeFolder(node) {
			return n, nil
		}
	}
	return NodeStatus{}, fmt.Errorf("lab %s has no node %s", c.name, node)
}

// NodeOfPod returns the node of a pod (namespace/name) of a lab.
func NodeOfPod(ctx context.Context, lab, pod string) (string, error) {
	s, err := NewClient(Root(), lab).Status(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range s.Pods {
		if p.Pod == pod {
			return p.Node, nil
		}
	}
	return "", fmt.Errorf("lab %s has no pod %s", lab, pod)
}
