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
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/lab"
)

// labNode is the only node of a lab, with two pods. Its backend changes between
// turns.
type labNode struct {
	lab    *lab.Lab
	wire   *wire
	server *namespace.Namespace
	// offload is the setting of the agent.
	offload bool
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

func labConfig(backend, datapath string) lab.Config {
	return lab.Config{
		Name: fmt.Sprintf("bench-%d", os.Getpid()), Backend: backend, Datapath: datapath, SyncTimeout: syncTimeout, Offload: config.OffloadOff,
	}
}

// startLabNode makes a lab. It ends with close, or else when the next lab is made.
func startLabNode(ctx context.Context, backend, datapath string) (_ *labNode, err error) {
	l, err := lab.Up(ctx, labConfig(backend, datapath))
	if err != nil {
		return nil, err
	}
	n := &labNode{lab: l}
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

// use moves the node to a path of pathsOfBackends. The setting offload takes a restart of the
// agent.
func (n *labNode) use(ctx context.Context, name string) error {
	backend, on := strings.CutSuffix(name, offloaded)
	if on != n.offload {
		node := n.lab.Node(labNodeName)
		if err := node.StopAgent(); err != nil {
			return err
		}
		node.SetOffload(map[bool]string{false: config.OffloadOff, true: config.OffloadAuto}[on])
		node.SetBackend(backend)
		if err := errors.Join(node.StartAgent(), node.Sync(ctx)); err != nil {
			return err
		}
		n.offload = on
	}
	return n.agent().SetBackend(ctx, backend)
}

// offloaded follows the name of a backend whose established connections skip the host.
const offloaded = "+offload"
