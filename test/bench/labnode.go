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

// labNode is the only node of a lab, with two pods. Its backend changes between
// turns.
type labNode struct {
	lab    *lab.Lab
	wire   *wire
	server *namespace.Namespace
	// offload and layout are settings of the agent.
	offload, layout string
	// probes is the number of the next probe: no two of a run are alike.
	probes uint64
}

const (
	// labNodeName is the node's name, labNamespace that of its pods.
	labNodeName  = "node1"
	labNamespace = "bench"
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
	backend, offload, layout := settingsOf(path, config.LayoutRules)
	return lab.Config{
		Name: fmt.Sprintf("bench-%d", os.Getpid()), Backend: backend, Datapath: datapath, SyncTimeout: syncTimeout, Offload: offload, NFTablesLayout: layout,
	}
}

// startLabNode makes a lab on one of pathsOfBackends. It ends with close, or else when the next lab is made.
func startLabNode(ctx context.Context, path, datapath string) (_ *labNode, err error) {
	cfg := labConfig(path, datapath)
	l, err := lab.Up(ctx, cfg)
	if err != nil {
		return nil, err
	}
	n := &labNode{lab: l, offload: cfg.Offload, layout: cfg.NFTablesLayout}
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
	return n.lab.SetState(ctx, lab.State{
		Nodes: []*corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{Name: labNodeName},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.77.11"}}},
		}},
		Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: labNamespace}}},
		Pods:       []*corev1.Pod{labPod(clientPod(), labAddress(0)), labPod(serverPod(), labAddress(1))},
		Files:      files,
	})
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

func labPod(id model.PodID, a netip.Addr) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, Labels: map[string]string{"app": id.Name}},
		Spec:       corev1.PodSpec{NodeName: labNodeName, Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: a.String(), PodIPs: []corev1.PodIP{{IP: a.String()}}},
	}
	if id == clientPod() {
		key, value := workload.AllowedLabel()
		p.Labels[key] = value
	}
	return p
}

// agent asks the node's agent.
func (n *labNode) agent() *control.Client {
	return control.NewClient(n.lab.Node(labNodeName).ControlSocket())
}

// use moves the node to a path of pathsOfBackends. Another setting takes a restart of the agent.
func (n *labNode) use(ctx context.Context, path string) error {
	backend, offload, layout := settingsOf(path, n.layout)
	if offload != n.offload || layout != n.layout {
		node := n.lab.Node(labNodeName)
		if err := node.StopAgent(); err != nil {
			return err
		}
		node.SetOffload(offload)
		node.SetLayout(layout)
		node.SetBackend(backend)
		if err := errors.Join(node.StartAgent(), node.Sync(ctx)); err != nil {
			return err
		}
		n.offload, n.layout = offload, layout
	}
	return n.agent().SetBackend(ctx, backend)
}

// settingsOf returns the settings of a path. Only backend nftables has a layout; with others it stays as it is.
func settingsOf(path, before string) (backend, offload, layout string) {
	backend, on := strings.CutSuffix(path, offloaded)
	if offload = config.OffloadOff; on {
		offload = config.OffloadAuto
	}
	switch backend {
	case worker.NFTablesMaps:
		return config.NFTables, offload, config.LayoutMaps
	case config.NFTables:
		return backend, offload, config.LayoutRules
	}
	return backend, offload, before
}

// offloaded follows the name of a backend whose established connections skip the host.
const offloaded = "+offload"
