// Package plugin is the CNI plugin: it sends the runtime's request to the agent
// of its node and prints the answer in the version of the request.
//
// It attaches nothing itself and decides nothing: without the agent it fails
// with the code on which the runtime tries again. It is tested with the
// binary, called as a runtime calls it, against an agent's server on real
// namespaces (cni), and with a server that only answers.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/internal/socketapi"
)

// timeout bounds a request. The agent waits for less than half of it; the
// kubelet gives up after two minutes.
const timeout = 50 * time.Second

// Main runs the CNI command of the environment, and exits with CNI's code. Without a
// command it prints about.
func Main(about string) { skel.PluginMainFuncs(functions(), Versions(), about) }

// Versions are the versions of CNI's specification that the plugin speaks.
func Versions() version.PluginInfo {
	return version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
}

func functions() skel.CNIFuncs {
	return skel.CNIFuncs{Add: add, Del: del, Check: check, Status: agentStatus, GC: gc}
}

func add(args *skel.CmdArgs) error {
	conf, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	sandbox, err := sandboxOf(args)
	if err != nil {
		return err
	}
	if conf.RawPrevResult != nil {
		return conf.follow(sandbox)
	}
	var reply protocol.AddReply
	if err := conf.call(protocol.AddPath, protocol.SandboxRequest{Sandbox: sandbox}, &reply); err != nil {
		return err
	}
	result, err := resultOf(&reply, args.Netns)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "the agent's answer cannot be read", err.Error())
	}
	return types.PrintResult(result, conf.CNIVersion)
}

// follow has the agent take the interface that the plugins before have made, and hands their result on.
func (c *config) follow(sandbox protocol.Sandbox) error {
	addresses, err := c.previous(sandbox.Interface)
	if err != nil {
		return err
	}
	err = c.call(protocol.ChainPath, protocol.ChainRequest{Sandbox: sandbox, Addresses: addresses}, nil)
	if e := (*types.Error)(nil); errors.As(err, &e) && e.Code == types.ErrInvalidEnvironmentVariables {
		// The agent refuses the sandbox because of what the plugins before have made.
		return types.NewError(types.ErrInvalidNetworkConfig, e.Msg, e.Details)
	}
	if err != nil {
		return err
	}
	return types.PrintResult(c.PrevResult, c.CNIVersion)
}

func del(args *skel.CmdArgs) error {
	conf, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	sandbox, err := sandboxOf(args)
	if err != nil {
		return err
	}
	return conf.call(protocol.DelPath, protocol.SandboxRequest{Sandbox: sandbox}, nil)
}

func check(args *skel.CmdArgs) error {
	conf, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	sandbox, err := sandboxOf(args)
	if err != nil {
		return err
	}
	request := protocol.CheckRequest{Sandbox: sandbox}
	if request.Addresses, err = conf.previous(args.IfName); err != nil {
		return err
	}
	return conf.call(protocol.CheckPath, request, nil)
}

func agentStatus(args *skel.CmdArgs) error {
	conf, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	if err := conf.call(protocol.StatusPath, protocol.Empty{}, nil); err != nil {
		// Any error means that no pod can be added.
		return types.NewError(errPluginNotAvailable, err.Error(), "")
	}
	return nil
}

func gc(args *skel.CmdArgs) error {
	conf, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	request, err := conf.valid(args.StdinData)
	if err != nil {
		return err
	}
	return conf.call(protocol.GCPath, request, nil)
}

// call calls the agent, and converts its error to one of CNI's.
func (c *config) call(path string, request, reply any) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.cniError(socketapi.NewClient(c.Socket).Call(ctx, http.MethodPost, path, nil, request, reply))
}

// resultOf converts the agent's answer to CNI's result.
func resultOf(reply *protocol.AddReply, netns string) (*types100.Result, error) {
	result := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: reply.Host.Name, Mac: reply.Host.MAC, Mtu: reply.Host.MTU},
			{Name: reply.Pod.Name, Mac: reply.Pod.MAC, Mtu: reply.Pod.MTU, Sandbox: netns},
		},
	}
	for _, a := range reply.Addresses {
		if !a.Prefix.IsValid() || !a.Gateway.IsValid() {
			return nil, fmt.Errorf("address %s, gateway %s", a.Prefix, a.Gateway)
		}
		bits := a.Prefix.Addr().BitLen()
		result.IPs = append(result.IPs, &types100.IPConfig{
			Interface: types100.Int(1), Gateway: a.Gateway.AsSlice(),
			Address: net.IPNet{IP: a.Prefix.Addr().AsSlice(), Mask: net.CIDRMask(a.Prefix.Bits(), bits)},
		})
		result.Routes = append(result.Routes, &types.Route{
			Dst: net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}, GW: a.Gateway.AsSlice(),
		})
	}
	return result, nil
}
