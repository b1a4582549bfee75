package plugin

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/felixlike/felixlike/cni/protocol"
)

// defaultSocket is the agent's socket by default.
const defaultSocket = "/run/felixlike/cni.sock"

// config is the plugin's configuration.
type config struct {
	types.PluginConf
	// Socket is the path of the agent's socket.
	Socket string `json:"socket"`
}

func parse(data []byte) (*config, error) {
	c := &config{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "network configuration", err.Error())
	}
	if c.Socket == "" {
		c.Socket = defaultSocket
	}
	if c.Socket[0] != '/' {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("socket %q is not an absolute path", c.Socket), "")
	}
	return c, nil
}

// previous returns the addresses that an earlier ADD has given the interface.
func (c *config) previous(ifName string) ([]string, error) {
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "prevResult", err.Error())
	}
	if c.PrevResult == nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "CHECK needs the prevResult of ADD", "")
	}
	result, err := types100.NewResultFromResult(c.PrevResult)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "prevResult", err.Error())
	}
	var addresses []string
	for _, ip := range result.IPs {
		// A later plugin may have added other interfaces.
		if at := ip.Interface; at != nil && *at >= 0 && *at < len(result.Interfaces) && result.Interfaces[*at].Name != ifName {
			continue
		}
		addresses = append(addresses, ip.Address.String())
	}
	return addresses, nil
}

// valid returns the request of a GC. It refuses a configuration without a list, because that
// would remove everything. An empty list is valid.
func (c *config) valid(data []byte) (*protocol.GCRequest, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "network configuration", err.Error())
	}
	if _, there := keys["cni.dev/valid-attachments"]; !there {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "GC needs cni.dev/valid-attachments", "")
	}
	request := &protocol.GCRequest{Valid: []protocol.Attachment{}}
	for _, a := range c.ValidAttachments {
		request.Valid = append(request.Valid, protocol.Attachment{ContainerID: a.ContainerID, Interface: a.IfName})
	}
	return request, nil
}

// kubernetesArgs are the values that Kubernetes' runtimes put in CNI_ARGS.
type kubernetesArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE, K8S_POD_NAME types.UnmarshallableString
	K8S_POD_UID                     types.UnmarshallableString
	// The container id once more.
	K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString
}

func sandboxOf(args *skel.CmdArgs) (protocol.Sandbox, error) {
	var k kubernetesArgs
	if err := types.LoadArgs(args.Args, &k); err != nil {
		return protocol.Sandbox{}, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS", err.Error())
	}
	return protocol.Sandbox{
		ContainerID: args.ContainerID, NetNS: args.Netns, Interface: args.IfName,
		PodNamespace: string(k.K8S_POD_NAMESPACE), PodName: string(k.K8S_POD_NAME), PodUID: string(k.K8S_POD_UID),
	}, nil
}
