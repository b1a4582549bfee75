package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/lab"
)

// labNode is the node of a lab with the pod that is the client. The server is on the same node or, if the run has traffic
// modes, on a second one. The settings of all nodes change between turns.
type labNode struct {
	lab    *lab.Lab
	wire   *wire
	server *namespace.Namespace
	// nodes are the names of all nodes, the client's first.
	nodes []string
	// now are the settings of the agents.
	now settings
	// probes is the number of the next probe: no two of a run are alike.
	probes uint64
}

const (
	// labNodeName is the node's name, secondNodeName that of another one, labNamespace that of the pods.
	labNodeName    = "node1"
	secondNodeName = "node2"
	labNamespace   = "bench"
	// packetsPort is the port of the server pod.
	packetsPort = 8080
	// podInterface is the interface of a pod.
	podInterface = "eth0"
	// podMTU leaves room for a tunnel, as in a lab.
	podMTU = 1450
	// syncTimeout bounds the agent's time for thousands of policies.
	syncTimeout = 10 * time.Minute
)

func clientPod() model.PodID { return model.PodID{Namespace: labNamespace, Name: "client"} }

func serverPod() model.PodID { return model.PodID{Namespace: labNamespace, Name: "server"} }

func labConfig(path, datapath string) lab.Config {
	on := settingsOf(path, settings{layout: config.LayoutRules})
	return lab.Config{
		Name: fmt.Sprintf("bench-%d", os.Getpid()), Backend: on.backend, Datapath: datapath, SyncTimeout: syncTimeout,
		Offload: on.offload, NFTablesLayout: on.layout, TrafficMode: on.mode,
	}
}

// startLabNode makes a lab on one of pathsOfBackends. It ends with close, or else when the next lab is made.
func startLabNode(ctx context.Context, path, datapath string) (_ *labNode, err error) {
	cfg := labConfig(path, datapath)
	l, err := lab.Up(ctx, cfg)
	if err != nil {
		return nil, err
	}
	n := &labNode{lab: l, nodes: []string{labNodeName}, now: settingsOf(path, settings{layout: config.LayoutRules})}
	if n.now.mode != "" {
		n.nodes = append(n.nodes, secondNodeName)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if err := n.set(ctx, workload.Point{}); err != nil {
		return nil, err
	}
	_, vswitchd := l.Node(labNodeName).OVS().PIDs()
	client, server := l.Pod(clientPod()), l.Pod(serverPod())
	n.server = server.Namespace()
	n.wire, err = newWire(client.Namespace(), n.server, server.Address(model.IPv4), vswitchd)
	return n, err
}

func (n *labNode) close() error {
	if n.wire != nil {
		n.wire.close()
	}
	return n.lab.Down()
}

// set brings the node to the policies of a point, and waits until they are in
// force.
func (n *labNode) set(ctx context.Context, at workload.Point) error {
	files, err := reached(at).Files()
	if err != nil {
		return err
	}
	state := lab.State{
		Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: labNamespace}}},
		Pods:       []*corev1.Pod{n.pod(clientPod()), n.pod(serverPod())},
		Files:      files,
	}
	for i, name := range n.nodes {
		state.Nodes = append(state.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", 1+i)}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.77.%d", 11+i)}}},
		})
	}
	return n.lab.SetState(ctx, state)
}

// reached are the policies of a point.
func reached(at workload.Point) workload.Reached {
	return workload.Reached{
		Point: at, Namespace: labNamespace, Port: packetsPort,
		Server: map[string]string{"app": serverPod().Name}, Client: map[string]string{"app": clientPod().Name},
	}
}

// labAddress is the address of the client (0) or the server (1).
func labAddress(i byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 244, 1, 10 + i}) }

// pod returns the client on the first node, or the server on the last one.
func (n *labNode) pod(id model.PodID) *corev1.Pod {
	node, a := n.nodes[0], labAddress(0)
	if id == serverPod() {
		node, a = n.nodes[len(n.nodes)-1], netip.AddrFrom4([4]byte{10, 244, byte(len(n.nodes)), 11})
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, Labels: map[string]string{"app": id.Name}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: a.String(), PodIPs: []corev1.PodIP{{IP: a.String()}}},
	}
	if id == clientPod() {
		key, value := workload.AllowedLabel()
		p.Labels[key] = value
	}
	return p
}

// agent asks the agent of the client's node.
func (n *labNode) agent() *control.Client {
	return control.NewClient(n.lab.Node(labNodeName).ControlSocket())
}

// use moves all nodes to a path of pathsOfBackends. Another setting takes a restart of the agents.
func (n *labNode) use(ctx context.Context, path string) error {
	wanted := settingsOf(path, n.now)
	restart := n.now
	restart.backend = wanted.backend
	for _, name := range n.nodes {
		node := n.lab.Node(name)
		if restart != wanted {
			if err := node.StopAgent(); err != nil {
				return err
			}
			node.Settings().Offload = wanted.offload
			node.Settings().NFTablesLayout = wanted.layout
			if wanted.mode != "" {
				node.Settings().TrafficMode = wanted.mode
			}
			node.Settings().Backend = n.now.backend // changed below
			if err := errors.Join(node.StartAgent(), node.Sync(ctx)); err != nil {
				return err
			}
		}
		if err := control.NewClient(node.ControlSocket()).SetBackend(ctx, wanted.backend); err != nil {
			return err
		}
	}
	n.now = wanted
	return nil
}

// settings are those of the agents that a path has.
type settings struct{ backend, offload, layout, mode string }

// settingsOf returns the settings of a path. Only backend nftables has a layout; with others it stays as it was.
func settingsOf(path string, before settings) settings {
	backend, with, _ := strings.Cut(path, plus)
	s := settings{backend: backend, offload: config.OffloadOff, layout: before.layout}
	for _, word := range strings.Split(with, plus) {
		switch word {
		case offloaded:
			s.offload = config.OffloadAuto
		default:
			s.mode = word
		}
	}
	switch backend {
	case worker.NFTablesMaps:
		s.backend, s.layout = config.NFTables, config.LayoutMaps
	case config.NFTables:
		s.layout = config.LayoutRules
	}
	return s
}

// A path is the name of a backend. After it, each behind plus, follow offloaded if established connections skip the host,
// and the traffic mode if the pods are on two nodes.
const (
	plus      = "+"
	offloaded = "offload"
)
