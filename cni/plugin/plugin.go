// Package plugin is the CNI plugin: it sends the runtime's request to the agent
// of its node and prints the answer in the version of the request.
//
// It attaches nothing itself and decides nothing: with the agent away it fails
// with the code that tells the runtime to try again. It is tested with the
// binary, called as a runtime calls it, against an agent's server on real
// namespaces (cni), and with a server that only answers.
package plugin

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/felixlike/felixlike/cni/cniv1"
)

// timeout bounds a request. The agent waits for less than half of it; the
// kubelet gives up after two minutes.
const timeout = 50 * time.Second

// Main runs the plugin as the environment asks, and exits with the code that CNI
// wants. About is printed if nothing is asked.
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
	if conf.RawPrevResult != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "felixlike-cni makes the pod's interface: it must be the first plugin of the list", "")
	}
	sandbox, err := sandboxOf(args)
	if err != nil {
		return err
	}
	var reply *cniv1.AddResponse
	err = conf.ask(func(ctx context.Context, agent cniv1.CNIClient) (err error) {
		reply, err = agent.Add(ctx, &cniv1.AddRequest{Sandbox: sandbox})
		return err
	})
	if err != nil {
		return err
	}
	result, err := resultOf(reply, args.Netns)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "the agent's answer cannot be read", err.Error())
	}
	return types.PrintResult(result, conf.CNIVersion)
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
	return conf.ask(func(ctx context.Context, agent cniv1.CNIClient) error {
		_, err := agent.Del(ctx, &cniv1.DelRequest{Sandbox: sandbox})
		return err
	})
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
	request := &cniv1.CheckRequest{Sandbox: sandbox}
	if request.Addresses, err = conf.previous(args.IfName); err != nil {
		return err
	}
	return conf.ask(func(ctx context.Context, agent cniv1.CNIClient) error {
		_, err := agent.Check(ctx, request)
		return err
	})
}

func agentStatus(args *skel.CmdArgs) error {
	conf, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	err = conf.ask(func(ctx context.Context, agent cniv1.CNIClient) error {
		_, err := agent.Status(ctx, &cniv1.StatusRequest{})
		return err
	})
	if err != nil {
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
	return conf.ask(func(ctx context.Context, agent cniv1.CNIClient) error {
		_, err := agent.GC(ctx, request)
		return err
	})
}

// ask calls the agent, and makes its error one of CNI's.
func (c *config) ask(call func(context.Context, cniv1.CNIClient) error) error {
	// The socket's directory is root's; nothing else protects it, nor has to.
	conn, err := grpc.NewClient("unix:"+c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "socket "+c.Socket, err.Error())
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.cniError(call(ctx, cniv1.NewCNIClient(conn)))
}

// resultOf makes CNI's result of the agent's answer.
func resultOf(reply *cniv1.AddResponse, netns string) (*types100.Result, error) {
	result := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: reply.GetHost().GetName(), Mac: reply.GetHost().GetMac(), Mtu: int(reply.GetHost().GetMtu())},
			{Name: reply.GetPod().GetName(), Mac: reply.GetPod().GetMac(), Mtu: int(reply.GetPod().GetMtu()), Sandbox: netns},
		},
	}
	for _, a := range reply.GetAddresses() {
		prefix, err := netip.ParsePrefix(a.GetPrefix())
		if err != nil {
			return nil, fmt.Errorf("address: %w", err)
		}
		gateway, err := netip.ParseAddr(a.GetGateway())
		if err != nil {
			return nil, fmt.Errorf("gateway of %s: %w", prefix, err)
		}
		bits := prefix.Addr().BitLen()
		result.IPs = append(result.IPs, &types100.IPConfig{
			Interface: types100.Int(1), Gateway: gateway.AsSlice(),
			Address: net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), bits)},
		})
		result.Routes = append(result.Routes, &types.Route{
			Dst: net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}, GW: gateway.AsSlice(),
		})
	}
	return result, nil
}
