package service_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/felixlike/service"
	"github.com/felixlike/felixlike/model"
)

// TestServe: how the node "here", in zone a, serves Services. An endpoint with a star is on it.
func TestServe(t *testing.T) {
	const web = `{metadata: {name: web}, spec: {clusterIPs: [10.96.0.1], ports: [{port: 80, name: http}]}}`
	for _, c := range []struct {
		name     string
		services []string
		slices   []string
		want     string
	}{
		{"ready endpoints", []string{web}, []string{"1 web http=8080/TCP 10.0.0.2@there 10.0.0.1@here 10.0.0.3@there,unready"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080* 10.0.0.2:8080`},
		{"no endpoint", []string{web}, []string{"1 web http=8080/TCP 10.0.0.3@there,unready 10.0.0.4@here,terminating"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> refuse`},
		{"serving and terminating, as nothing is ready", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@here,draining 10.0.0.2@there,draining 10.0.0.3@there,terminating"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080* 10.0.0.2:8080`},
		{"terminating beside ready", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@here,draining 10.0.0.2@there"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.2:8080`},
		{"not served", []string{
			`{metadata: {name: headless}, spec: {clusterIP: None, ports: [{port: 80}]}}`,
			`{metadata: {name: unallocated}, spec: {ports: [{port: 80}]}}`,
			`{metadata: {name: outside}, spec: {type: ExternalName, clusterIP: 10.96.0.9, externalName: example.org, ports: [{port: 80}]}}`,
			`{metadata: {name: foreign, labels: {service.kubernetes.io/service-proxy-name: mesh}}, spec: {clusterIP: 10.96.0.8, ports: [{port: 80}]}}`,
			`{metadata: {name: labelled, labels: {service.kubernetes.io/headless: ""}}, spec: {clusterIP: 10.96.0.7, ports: [{port: 80}]}}`,
		}, nil, ``},
		{
			"internal policy Local",
			[]string{`{metadata: {name: web}, spec: {clusterIPs: [10.96.0.1], internalTrafficPolicy: Local, ports: [{port: 80, name: http}]}}`},
			[]string{"1 web http=8080/TCP 10.0.0.1@here 10.0.0.2@there"},
			`
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080*`,
		},
		{
			"internal policy Local, none here",
			[]string{`{metadata: {name: web}, spec: {clusterIPs: [10.96.0.1], internalTrafficPolicy: Local, ports: [{port: 80, name: http}]}}`},
			[]string{"1 web http=8080/TCP 10.0.0.2@there 10.0.0.1@here,unready"},
			`
shop/web:80/tcp cluster 10.96.0.1:80 -> drop`,
		},
		{
			"internal policy Local, none anywhere",
			[]string{`{metadata: {name: web}, spec: {clusterIPs: [10.96.0.1], internalTrafficPolicy: Local, ports: [{port: 80, name: http}]}}`},
			nil, `
shop/web:80/tcp cluster 10.96.0.1:80 -> refuse`,
		},
		{
			"internal policy Local while endpoints end",
			[]string{`{metadata: {name: web}, spec: {clusterIPs: [10.96.0.1], internalTrafficPolicy: Local, ports: [{port: 80, name: http}]}}`},
			[]string{"1 web http=8080/TCP 10.0.0.2@there 10.0.0.1@here,draining"},
			`
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080*`,
		},
		{
			"external policy Cluster",
			[]string{`{metadata: {name: web}, spec: {type: NodePort, clusterIPs: [10.96.0.1], ports: [{port: 80, name: http, nodePort: 30080}]}}`},
			[]string{"1 web http=8080/TCP 10.0.0.1@here 10.0.0.2@there"},
			`
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080* 10.0.0.2:8080
shop/web:80/tcp node 0.0.0.0:30080 -> 10.0.0.1:8080* 10.0.0.2:8080`,
		},
		{
			"external policy Local",
			[]string{`{metadata: {name: web}, spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 32000, clusterIPs: [10.96.0.1], externalIPs: [192.0.2.9], ports: [{port: 80, name: http, nodePort: 30080}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}`},
			[]string{"1 web http=8080/TCP 10.0.0.1@here 10.0.0.2@there"},
			`
shop/web:80/tcp no-masquerade cluster 10.96.0.1:80 -> 10.0.0.1:8080* 10.0.0.2:8080
shop/web:80/tcp no-masquerade external 192.0.2.9:80 -> 10.0.0.1:8080* inside 10.0.0.1:8080* 10.0.0.2:8080
shop/web:80/tcp no-masquerade lb 192.0.2.1:80 -> 10.0.0.1:8080* inside 10.0.0.1:8080* 10.0.0.2:8080
shop/web:80/tcp no-masquerade node 0.0.0.0:30080 -> 10.0.0.1:8080* inside 10.0.0.1:8080* 10.0.0.2:8080
health shop/web port 32000: 1`,
		},
		{
			"external policy Local, none here",
			[]string{`{metadata: {name: web}, spec: {type: NodePort, externalTrafficPolicy: Local, clusterIPs: [10.96.0.1], ports: [{port: 80, name: http, nodePort: 30080}]}}`},
			[]string{"1 web http=8080/TCP 10.0.0.2@there"},
			`
shop/web:80/tcp no-masquerade cluster 10.96.0.1:80 -> 10.0.0.2:8080
shop/web:80/tcp no-masquerade node 0.0.0.0:30080 -> drop inside 10.0.0.2:8080`,
		},
		{
			"external policy Local, the only one here ends",
			[]string{`{metadata: {name: web}, spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 32000, clusterIPs: [10.96.0.1], ports: [{port: 80, name: http, nodePort: 30080}]}}`},
			[]string{"1 web http=8080/TCP 10.0.0.1@here,draining 10.0.0.2@there"},
			`
shop/web:80/tcp no-masquerade cluster 10.96.0.1:80 -> 10.0.0.2:8080
shop/web:80/tcp no-masquerade node 0.0.0.0:30080 -> 10.0.0.1:8080* inside 10.0.0.2:8080
health shop/web port 32000: 0`,
		},
		{
			"external policy Local, none anywhere",
			[]string{`{metadata: {name: web}, spec: {type: NodePort, externalTrafficPolicy: Local, clusterIPs: [10.96.0.1], ports: [{port: 80, name: http, nodePort: 30080}]}}`},
			nil, `
shop/web:80/tcp no-masquerade cluster 10.96.0.1:80 -> refuse
shop/web:80/tcp no-masquerade node 0.0.0.0:30080 -> refuse`,
		},
		{
			"health of a Service with two ports and two families counts endpoints",
			[]string{`{metadata: {name: web}, spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 32000, clusterIPs: [10.96.0.1, "fd00:96::1"], ports: [{port: 80, name: http}, {port: 443, name: https}]}}`},
			[]string{"1 web http=8080/TCP https=8443/TCP 10.0.0.1@here 10.0.0.2@here", "2 web http=8080/TCP https=8443/TCP fd00::1@here fd00::2@here"},
			`
shop/web:80/tcp no-masquerade cluster 10.96.0.1:80 -> 10.0.0.1:8080* 10.0.0.2:8080*
shop/web:80/tcp no-masquerade cluster fd00:96::1:80 -> [fd00::1]:8080* [fd00::2]:8080*
shop/web:443/tcp no-masquerade cluster 10.96.0.1:443 -> 10.0.0.1:8443* 10.0.0.2:8443*
shop/web:443/tcp no-masquerade cluster fd00:96::1:443 -> [fd00::1]:8443* [fd00::2]:8443*
health shop/web port 32000: 2`,
		},
		{"hints for zones", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@x,zone=a 10.0.0.2@y,zone=b 10.0.0.3@z,zone=b,zone=a"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080 10.0.0.3:8080`},
		{"hints for zones, one without", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@x,zone=a 10.0.0.2@y"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080 10.0.0.2:8080`},
		{"hints for zones, one without that is not ready", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@x,zone=a 10.0.0.2@y,unready 10.0.0.3@y,zone=b"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080`},
		{"hints for zones, none for this one", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@x,zone=b 10.0.0.2@y,zone=c"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080 10.0.0.2:8080`},
		{"hints for zones, those of this one only end", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@x,zone=a,draining 10.0.0.2@y,zone=b"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.2:8080`},
		{"hints for nodes before those for zones", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@here,zone=a,node=here 10.0.0.2@y,zone=a,node=y"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080*`},
		{"hints for nodes, none for this one", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@x,zone=a,node=x 10.0.0.2@y,zone=b,node=y"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080`},
		{"hints for nodes, one without", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@here,node=here 10.0.0.2@y"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080* 10.0.0.2:8080`},
		{
			"policy Local does not look at hints",
			[]string{`{metadata: {name: web}, spec: {clusterIPs: [10.96.0.1], internalTrafficPolicy: Local, ports: [{port: 80, name: http}]}}`},
			[]string{"1 web http=8080/TCP 10.0.0.1@here,zone=b 10.0.0.2@y,zone=a"},
			`
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080*`,
		},
		{"one address in several slices", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@here,unready 10.0.0.2@there", "2 web http=8080/TCP 10.0.0.1@here", "3 web http=8080/TCP 10.0.0.2@there,draining"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080* 10.0.0.2:8080`},
		{
			"one number for two protocols",
			[]string{`{metadata: {name: dns}, spec: {clusterIPs: [10.96.0.10], ports: [{port: 53, name: tcp, protocol: TCP}, {port: 53, name: udp, protocol: UDP}]}}`},
			[]string{"1 dns tcp=5353/TCP udp=53/UDP 10.0.0.1@here"},
			`
shop/dns:53/tcp cluster 10.96.0.10:53 -> 10.0.0.1:5353*
shop/dns:53/udp cluster 10.96.0.10:53 -> 10.0.0.1:53*`,
		},
		{"one name with other numbers in each slice", []string{web}, []string{"1 web http=8080/TCP 10.0.0.1@here", "2 web http=9090/TCP metrics=1/TCP 10.0.0.2@there"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080* 10.0.0.2:9090`},
		{"two ports of a slice with one name and other protocols", []string{web}, []string{"1 web http=8080/UDP http=8081/TCP 10.0.0.1@here"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8081*`},
		{
			"publishNotReadyAddresses: the controller says ready",
			[]string{`{metadata: {name: web}, spec: {publishNotReadyAddresses: true, clusterIPs: [10.96.0.1], ports: [{port: 80, name: http}]}}`},
			[]string{"1 web http=8080/TCP 10.0.0.1@here"},
			`
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080*`,
		},
		{
			"two families",
			[]string{`{metadata: {name: web}, spec: {clusterIPs: ["fd00:96::1", 10.96.0.1], ports: [{port: 80, name: http}]}}`},
			[]string{"1 web http=8080/TCP 10.0.0.1@here", "2 web http=8080/TCP fd00::2@there"},
			`
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080*
shop/web:80/tcp cluster fd00:96::1:80 -> [fd00::2]:8080`,
		},
		{
			"two families, endpoints of one",
			[]string{`{metadata: {name: web}, spec: {type: NodePort, clusterIPs: ["fd00:96::1", 10.96.0.1], ports: [{port: 80, name: http, nodePort: 30080}]}}`},
			[]string{"1 web http=8080/TCP 10.0.0.1@here"},
			`
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080*
shop/web:80/tcp cluster fd00:96::1:80 -> refuse
shop/web:80/tcp node 0.0.0.0:30080 -> 10.0.0.1:8080*
shop/web:80/tcp node :::30080 -> refuse`,
		},
		{
			"addresses of a family without cluster IP",
			[]string{`{metadata: {name: web}, spec: {type: LoadBalancer, clusterIPs: [10.96.0.1], externalIPs: ["2001:db8::1"], ports: [{port: 80, name: http}]}, status: {loadBalancer: {ingress: [{ip: "2001:db8::2"}]}}}`},
			[]string{"1 web http=8080/TCP 10.0.0.1@here"},
			`
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080*
service/shop/web: status.loadBalancer.ingress[0].ip: 2001:db8::2: the Service has no cluster IP of this family: not served
service/shop/web: spec.externalIPs[0]: 2001:db8::1: the Service has no cluster IP of this family: not served`,
		},
		{"SCTP", []string{`{metadata: {name: web}, spec: {clusterIPs: [10.96.0.1], ports: [{port: 80, protocol: SCTP}]}}`}, []string{"1 web =8080/SCTP 10.0.0.1@here"}, `
shop/web:80/sctp cluster 10.96.0.1:80 -> 10.0.0.1:8080*`},
		{"affinity", []string{
			`{metadata: {name: a}, spec: {clusterIPs: [10.96.0.1], sessionAffinity: ClientIP, ports: [{port: 80}]}}`,
			`{metadata: {name: b}, spec: {clusterIPs: [10.96.0.2], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 10}}, ports: [{port: 80}]}}`,
		}, nil, `
shop/a:80/tcp affinity 3h0m0s cluster 10.96.0.1:80 -> refuse
shop/b:80/tcp affinity 10s cluster 10.96.0.2:80 -> refuse`},
		{"load balancers that proxy, by name, or by address", []string{`{metadata: {name: web}, spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, clusterIPs: [10.96.0.1], ports: [{port: 80}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: Proxy}, {hostname: lb.example.org}, {ip: 192.0.2.2, ipMode: VIP}]}}}`}, nil, `
shop/web:80/tcp cluster 10.96.0.1:80 -> refuse
shop/web:80/tcp lb 192.0.2.2:80 -> refuse`},
		{"source ranges by family", []string{`{metadata: {name: web}, spec: {type: LoadBalancer, loadBalancerSourceRanges: [" 198.51.100.7/24 ", "2001:db8::/32"], clusterIPs: [10.96.0.1, "fd00:96::1"], ports: [{port: 80, nodePort: 30080}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {ip: "2001:db8::1"}]}}}`}, nil, `
shop/web:80/tcp cluster 10.96.0.1:80 -> refuse
shop/web:80/tcp cluster fd00:96::1:80 -> refuse
shop/web:80/tcp lb 192.0.2.1:80 -> refuse sources [198.51.100.0/24]
shop/web:80/tcp lb 2001:db8::1:80 -> refuse sources [2001:db8::/32]
shop/web:80/tcp node 0.0.0.0:30080 -> refuse
shop/web:80/tcp node :::30080 -> refuse`},
		{"source ranges of one family admit nobody of the other", []string{`{metadata: {name: web}, spec: {type: LoadBalancer, loadBalancerSourceRanges: [198.51.100.0/24], clusterIPs: ["fd00:96::1"], ports: [{port: 80}]}, status: {loadBalancer: {ingress: [{ip: "2001:db8::1"}]}}}`}, nil, `
shop/web:80/tcp cluster fd00:96::1:80 -> refuse
shop/web:80/tcp lb 2001:db8::1:80 -> refuse sources []`},
		{"a source range of everything", []string{`{metadata: {name: web}, spec: {type: LoadBalancer, loadBalancerSourceRanges: [0.0.0.0/0, 198.51.100.0/24], clusterIPs: ["fd00:96::1"], ports: [{port: 80}]}, status: {loadBalancer: {ingress: [{ip: "2001:db8::1"}]}}}`}, nil, `
shop/web:80/tcp cluster fd00:96::1:80 -> refuse
shop/web:80/tcp lb 2001:db8::1:80 -> refuse`},
		{"a source range that is none admits nobody", []string{`{metadata: {name: web}, spec: {type: LoadBalancer, loadBalancerSourceRanges: [all], clusterIPs: [10.96.0.1], ports: [{port: 80}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}`}, nil, `
shop/web:80/tcp cluster 10.96.0.1:80 -> refuse
shop/web:80/tcp lb 192.0.2.1:80 -> refuse sources []
service/shop/web: spec.loadBalancerSourceRanges[0]: "all" is no prefix: it admits nobody`},
		{"externalIPs of a node, of a cluster IP and of a load balancer", []string{
			`{metadata: {name: a-older, creationTimestamp: "2020-01-01T00:00:00Z"}, spec: {clusterIPs: [10.96.0.1], externalIPs: [172.16.0.2, 10.96.0.10, 192.0.2.1, 203.0.113.5], ports: [{port: 53}]}}`,
			`{metadata: {name: dns, creationTimestamp: "2021-01-01T00:00:00Z"}, spec: {type: LoadBalancer, clusterIPs: [10.96.0.10], ports: [{port: 53}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}`,
		}, nil, `
shop/a-older:53/tcp cluster 10.96.0.1:53 -> refuse
shop/a-older:53/tcp external 203.0.113.5:53 -> refuse
shop/dns:53/tcp cluster 10.96.0.10:53 -> refuse
shop/dns:53/tcp lb 192.0.2.1:53 -> refuse
service/shop/a-older: spec.externalIPs[0]: 172.16.0.2 is an address of node/there: refused
service/shop/a-older: spec.externalIPs[1]: 10.96.0.10 is an address of service/shop/dns (spec.clusterIPs[0]): refused
service/shop/a-older: spec.externalIPs[2]: 192.0.2.1 is an address of service/shop/dns (status.loadBalancer.ingress[0].ip): refused`},
		{"an externalIP is shared by port", []string{
			`{metadata: {name: a, creationTimestamp: "2021-01-01T00:00:00Z"}, spec: {clusterIPs: [10.96.0.1], externalIPs: [203.0.113.5], ports: [{port: 80}, {port: 81}]}}`,
			`{metadata: {name: b, creationTimestamp: "2020-01-01T00:00:00Z"}, spec: {clusterIPs: [10.96.0.2], externalIPs: [203.0.113.5], ports: [{port: 80}, {port: 82}]}}`,
		}, nil, `
shop/a:80/tcp cluster 10.96.0.1:80 -> refuse
shop/a:81/tcp cluster 10.96.0.1:81 -> refuse
shop/a:81/tcp external 203.0.113.5:81 -> refuse
shop/b:80/tcp cluster 10.96.0.2:80 -> refuse
shop/b:80/tcp external 203.0.113.5:80 -> refuse
shop/b:82/tcp cluster 10.96.0.2:82 -> refuse
shop/b:82/tcp external 203.0.113.5:82 -> refuse
service/shop/a: spec.externalIPs[0]: 203.0.113.5, port 80/tcp, belongs to service/shop/b, which is older: refused`},
		{"of the same age, the name decides", []string{
			`{metadata: {name: b}, spec: {clusterIPs: [10.96.0.1], ports: [{port: 80}]}}`, `{metadata: {name: a}, spec: {clusterIPs: [10.96.0.1], ports: [{port: 80}]}}`,
		}, nil, `
shop/a:80/tcp cluster 10.96.0.1:80 -> refuse
shop/b:80/tcp no frontend
service/shop/b: spec.clusterIPs[0]: 10.96.0.1, port 80/tcp, belongs to service/shop/a, which is older: refused`},
		{"a node port twice", []string{
			`{metadata: {name: a}, spec: {type: NodePort, clusterIPs: [10.96.0.1], ports: [{port: 80, nodePort: 30080}]}}`,
			`{metadata: {name: b}, spec: {type: NodePort, clusterIPs: [10.96.0.2], ports: [{port: 80, nodePort: 30080}]}}`,
		}, nil, `
shop/a:80/tcp cluster 10.96.0.1:80 -> refuse
shop/a:80/tcp node 0.0.0.0:30080 -> refuse
shop/b:80/tcp cluster 10.96.0.2:80 -> refuse
service/shop/b: spec.ports[0].nodePort: node port 30080/tcp belongs to service/shop/a, which is older: refused`},
		{"one address as externalIP and of the load balancer", []string{`{metadata: {name: web}, spec: {type: LoadBalancer, loadBalancerSourceRanges: [198.51.100.0/24], externalIPs: [192.0.2.1], clusterIPs: [10.96.0.1], ports: [{port: 80}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}`}, nil, `
shop/web:80/tcp cluster 10.96.0.1:80 -> refuse
shop/web:80/tcp lb 192.0.2.1:80 -> refuse sources [198.51.100.0/24]`},
		{"a port twice", []string{`{metadata: {name: web}, spec: {clusterIPs: [10.96.0.1], ports: [{port: 80, name: a}, {port: 80, name: b}]}}`}, []string{"1 web a=8080/TCP b=9090/TCP 10.0.0.1@here"}, `
shop/web:80/tcp cluster 10.96.0.1:80 -> 10.0.0.1:8080*
service/shop/web: spec.ports[1]: 80/tcp is given twice: the first is served`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := service.New("here")
			e.SetNode(newNode("here a 172.16.0.1"))
			e.SetNode(newNode("there b 172.16.0.2"))
			for _, text := range c.slices {
				e.SetEndpointSlice(newSlice(t, text))
			}
			for _, text := range c.services {
				e.SetService(newService(t, text))
			}
			var got strings.Builder
			for _, u := range e.Flush() {
				switch u := u.(type) {
				case model.ServicePortUpdate:
					got.WriteString(textOf(u.Port))
				case model.ServiceHealthUpdate:
					for _, h := range u.All {
						fmt.Fprintf(&got, "health %s/%s port %d: %d\n", h.Namespace, h.Name, h.Port, h.LocalEndpoints)
					}
				default:
					t.Errorf("unexpected %T", u)
				}
			}
			for _, p := range e.Problems() {
				fmt.Fprintln(&got, p.Error())
			}
			if d := cmp.Diff(strings.TrimPrefix(c.want+"\n", "\n"), got.String()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestWhy: the query names the reason why an endpoint is not used.
func TestWhy(t *testing.T) {
	e := service.New("here")
	e.SetNode(newNode("here a"))
	e.SetService(newService(t, `{metadata: {name: web}, spec: {type: NodePort, externalTrafficPolicy: Local, clusterIPs: [10.96.0.1], ports: [{port: 80, name: http, nodePort: 30080}]}}`))
	e.SetEndpointSlice(newSlice(t, "1 web http=8080/TCP 10.0.0.1@here,zone=b 10.0.0.2@there,zone=a 10.0.0.3@there,unready 10.0.0.4@here,draining 10.0.0.5"))
	e.SetEndpointSlice(newSlice(t, "2 web http=8080/TCP 10.0.0.5,zone=b"))
	e.Flush()
	var got strings.Builder
	for _, p := range e.Service(e.Names()[0]) {
		for _, ep := range p.Endpoints {
			fmt.Fprintf(&got, "%s on %q: inside %q, outside %q\n", ep.AddrPort, ep.Node, ep.Internal, ep.External)
		}
	}
	// 10.0.0.5 is in both slices. The first one counts, so not all endpoints have hints.
	if d := cmp.Diff(`10.0.0.1:8080 on "here": inside "", outside ""
10.0.0.2:8080 on "there": inside "", outside "policy Local"
10.0.0.3:8080 on "there": inside "not ready", outside "policy Local"
10.0.0.4:8080 on "here": inside "terminating", outside "terminating"
10.0.0.5:8080 on "": inside "", outside "policy Local"
`, got.String()); d != "" {
		t.Error(d)
	}
	e.DeleteEndpointSlice("shop", "1")
	e.SetEndpointSlice(newSlice(t, "1 web http=8080/TCP 10.0.0.1@here,zone=b 10.0.0.2@there,zone=a"))
	if got := fmt.Sprint(e.Service(e.Names()[0])[0].Endpoints[0].Internal); got != "other zone" {
		t.Errorf("with hints at all endpoints: %q", got)
	}
}

// TestServing: all endpoints that answer are named, whether new connections go there or not.
func TestServing(t *testing.T) {
	e := service.New("here")
	e.SetNode(newNode("here a"))
	e.SetService(newService(t, `{metadata: {name: web}, spec: {internalTrafficPolicy: Local, clusterIPs: [10.96.0.1], ports: [{port: 80, name: http}]}}`))
	e.SetEndpointSlice(newSlice(t, "1 web http=8080/TCP 10.0.0.1@here 10.0.0.5@there 10.0.0.4@there,draining 10.0.0.3@here,unready 10.0.0.2@here,terminating"))
	got := e.Flush()[0].(model.ServicePortUpdate).Port.Serving
	if text := fmt.Sprint(got); text != "[10.0.0.1:8080 10.0.0.4:8080 10.0.0.5:8080]" {
		t.Error(text)
	}
	e.SetEndpointSlice(newSlice(t, "1 web http=8080/TCP 10.0.0.1@here 10.0.0.5@there 10.0.0.4@there,terminating"))
	if got := e.Flush(); len(got) != 1 {
		t.Errorf("an endpoint that answers no more: %d updates", len(got))
	}
}

// TestOneChange: a change of one EndpointSlice, Service or node sends the ports that it changes, and nothing else.
func TestOneChange(t *testing.T) {
	e := service.New("here")
	for i := range 100 {
		e.SetService(newService(t, fmt.Sprintf(`{metadata: {name: s%d}, spec: {type: NodePort, clusterIPs: [10.96.0.%d], ports: [{port: 80, name: http, nodePort: %d}], externalIPs: [192.0.2.%d]}}`, i, i, 30000+i, i)))
		e.SetEndpointSlice(newSlice(t, fmt.Sprintf("%d s%d http=8080/TCP 10.0.0.1@here", i, i)))
	}
	e.Flush()
	changed := func(what, want string) {
		t.Helper()
		var got []string
		for _, u := range e.Flush() {
			switch u := u.(type) {
			case model.ServicePortUpdate:
				got = append(got, u.Port.ID.String())
			case model.ServicePortRemove:
				got = append(got, "-"+u.ID.String())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", what, got, want)
		}
	}
	e.SetEndpointSlice(newSlice(t, "7 s7 http=8080/TCP 10.0.0.1@here 10.0.0.2@there"))
	changed("an endpoint", "shop/s7:80/tcp")
	e.SetEndpointSlice(newSlice(t, "7 s7 http=8080/TCP 10.0.0.2@there 10.0.0.1@here"))
	changed("another order", "")
	e.SetEndpointSlice(newSlice(t, "7 s8 http=8080/TCP 10.0.0.2@there"))
	changed("a slice that goes to another Service", "shop/s7:80/tcp shop/s8:80/tcp")
	e.SetNode(newNode("there b 192.0.2.5"))
	changed("a node with an externalIP", "shop/s5:80/tcp")
	e.DeleteNode("there")
	changed("without that node", "shop/s5:80/tcp")
	e.SetService(newService(t, `{metadata: {name: a}, spec: {type: LoadBalancer, clusterIPs: [10.96.1.1], ports: [{port: 443, name: http}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.9}]}}}`))
	changed("a load balancer's address that is an externalIP", "shop/s9:80/tcp shop/a:443/tcp")
	e.DeleteService("shop", "a")
	changed("a Service that ends", "-shop/a:443/tcp shop/s9:80/tcp")
	e.SetService(newService(t, `{metadata: {name: s3}, spec: {clusterIPs: [10.96.0.3], ports: [{port: 81, name: http}]}}`))
	changed("another port", "-shop/s3:80/tcp shop/s3:81/tcp")
}
