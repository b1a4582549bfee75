package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializers "k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
)

// serverName is a name that the certificate of each API server has. Their addresses may differ.
const serverName = "kubernetes.default.svc"

// LoadConfig returns how to reach the API server: by a kubeconfig file, or, if
// that is empty, as a pod of the cluster. servers are API servers, host:port, for a pod that cannot use the Service kubernetes.
func LoadConfig(kubeconfig string, servers []string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("kubernetes: not in a pod of a cluster (%w): set kubeconfig", err)
		}
		if len(servers) > 0 {
			c.Host, c.ServerName = "https://"+servers[0], serverName
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: kubeconfig %s: %w", kubeconfig, err)
	}
	return c, nil
}

// clients share one connection to the API server.
type clients struct {
	http *http.Client
	// connections are those of the HTTP client; nil if the configuration brings its own dialer.
	connections *connrotation.Dialer
	// reconnects counts how often the connections began to be closed, and were closed: it is odd meanwhile.
	reconnects atomic.Uint64
	events     *rest.RESTClient
	// core, networking and discovery decode only the wanted fields.
	core, networking, discovery *rest.RESTClient
	dynamic                     *dynamic.DynamicClient
	metadata                    metadata.Interface
}

// newClients returns clients that ask for protobuf where the API offers it, and for JSON where objects are
// decoded strictly: protobuf drops unknown fields.
func newClients(config *rest.Config, servers []string) (*clients, error) {
	asJSON := rest.CopyConfig(config)
	asJSON.WarningHandler = rest.NoWarnings{}
	// Watches last; a client's own limit is for requests that repeat.
	asJSON.QPS, asJSON.Burst = 50, 100
	c := &clients{}
	if asJSON.Dial == nil {
		c.connections = connrotation.NewDialer(firstOf(servers, dialer().DialContext))
		asJSON.Dial = c.connections.DialContext
	}
	asProtobuf := rest.CopyConfig(asJSON)
	asProtobuf.ContentType = runtime.ContentTypeProtobuf
	asProtobuf.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

	scheme, err := newScheme()
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	if c.http, err = rest.HTTPClientFor(asJSON); err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	whole := rest.CodecFactoryForGeneratedClient(scheme, serializers.NewCodecFactory(scheme)).WithoutConversion()
	wantedOnly := newSerializer(whole, wanted())
	if c.events, err = groupClient(asProtobuf, c.http, "/apis", eventsv1.SchemeGroupVersion, whole); err != nil {
		return nil, err
	}
	if c.core, err = groupClient(asProtobuf, c.http, "/api", corev1.SchemeGroupVersion, wantedOnly); err != nil {
		return nil, err
	}
	if c.networking, err = groupClient(asProtobuf, c.http, "/apis", networkingv1.SchemeGroupVersion, wantedOnly); err != nil {
		return nil, err
	}
	if c.discovery, err = groupClient(asProtobuf, c.http, "/apis", discoveryv1.SchemeGroupVersion, wantedOnly); err != nil {
		return nil, err
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(asJSON, c.http); err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	if c.metadata, err = metadata.NewForConfigAndClient(asJSON, c.http); err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return c, nil
}

// groupClient returns a client of one group of the API.
func groupClient(config *rest.Config, client *http.Client, path string, gv schema.GroupVersion, s runtime.NegotiatedSerializer) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = path, &gv, s
	c, err := rest.RESTClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return c, nil
}

// dialer returns a dialer; its connections detect within seconds that they are dead. If a node's address
// moves to another interface, netfilter deletes the connections that kube-proxy masquerades (ovsfwd/uplink
// avoids this, other programs may not). The API server's next change then goes to an unused port, and the server
// ends the watch. The agent, which only receives, would notice half a minute later, by HTTP/2's own pings.
func dialer() *net.Dialer {
	return &net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: 3 * time.Second, Count: 4},
	}
}

// firstOf returns dial, or a function that connects to the first of the servers that answers.
func firstOf(servers []string, dial connrotation.DialFunc) connrotation.DialFunc {
	if len(servers) == 0 {
		return dial
	}
	return func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		var all []error
		for _, at := range servers {
			if conn, err = dial(ctx, network, at); err == nil {
				return conn, nil
			}
			all = append(all, err)
		}
		return nil, errors.Join(all...)
	}
}

func (c *clients) close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

// Reconnect closes the connections to the API server; reading goes on with new ones. Call it when the node's
// addresses have moved: an older connection may be dead in one direction only. Then changes do not arrive,
// but the keep-alive probes are answered.
func (s *Source) Reconnect() {
	if s.clients.connections != nil {
		s.clients.reconnects.Add(1)
		s.clients.connections.CloseAll() // also those that were opened since
		s.clients.reconnects.Add(1)
	}
}

// kindList holds the kinds in their order; nil for those that are not read.
type kindList [kinds]*kind

// read returns the kinds that are read.
func (l *kindList) read() []*kind {
	return slices.DeleteFunc(slices.Clone(l[:]), func(k *kind) bool { return k == nil })
}

// kinds returns the kinds that a source of a node reads.
func (c *clients) kinds(o Options) kindList {
	all := kindList{
		kindNode:          newKind(kindNode, resource[*corev1.NodeList](c.core, kindNode), trimmed(trimNode), decodeNode),
		kindNamespace:     newKind(kindNamespace, resource[*corev1.NamespaceList](c.core, kindNamespace), trimmed(trimNamespace), decodeNamespace),
		kindServiceCIDR:   newKind(kindServiceCIDR, resource[*networkingv1.ServiceCIDRList](c.networking, kindServiceCIDR), trimmed(trimServiceCIDR), decodeServiceCIDR),
		kindPod:           newKind(kindPod, resource[*corev1.PodList](c.core, kindPod), trimmed(trimPod), decodePod),
		kindPolicy:        newKind(kindPolicy, c.dynamic.Resource(kindPolicy.resource()), trimPolicy, decodePolicy),
		kindClusterPolicy: newKind(kindClusterPolicy, c.dynamic.Resource(kindClusterPolicy.resource()), trimPolicy, decodeClusterPolicy),
	}
	for k := kindAntreaTier; k < kinds; k++ {
		all[k] = newKind(k, c.dynamic.Resource(k.resource()), trimPolicy, decodeAntrea(k))
	}
	if !o.NetNamespaces {
		all[kindNetNamespace], all[kindHostSubnet], all[kindEgressNetworkPolicy] = nil, nil, nil
	}
	if o.Services {
		all[kindService] = newKind(kindService, resource[*corev1.ServiceList](c.core, kindService), trimmed(trimService), decodeService)
		all[kindEndpointSlice] = newKind(kindEndpointSlice, resource[*discoveryv1.EndpointSliceList](c.discovery, kindEndpointSlice), trimmed(trimEndpointSlice), decodeEndpointSlice)
		all[kindEndpointSlice].reported = func(runtime.Object) bool { return false }
	}
	all[kindPod].reported = func(pod runtime.Object) bool { return pod.(*corev1.Pod).Spec.NodeName == o.Node }
	return all
}
