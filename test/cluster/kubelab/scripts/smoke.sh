#!/bin/bash
# smoke.sh: makes a DaemonSet and a Service, and tries connections between pods and to the Service's addresses, exec and logs.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
t=$(now)
kc apply -f - >/dev/null <<'Y'
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: kubelab.local/agnhost:1
        args: [netexec, --http-port=8080, --udp-port=8081]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, type: NodePort, ports: [{name: h, port: 80, targetPort: 8080, nodePort: 30080}, {name: u, port: 81, protocol: UDP, targetPort: 8081}]}
Y
kc rollout status ds/web --timeout=90s >/dev/null || die "web did not roll out"
echo "rollout: $(since "$t") s"
bad=0
check() { local what=$1; shift; if wait_for 10 "$@"; then echo "ok   $what"; else echo "FAIL $what"; bad=1; fi; }
vip=$(kc get svc web -o jsonpath='{.spec.clusterIP}')
for p in $(kc get pods -l app=web -o name); do
	for ip in $(kc get pods -l app=web -o jsonpath='{.items[*].status.podIP}'); do
		check "$p -> pod $ip" kc exec "$p" -- /agnhost connect "$ip:8080" --timeout=3s
	done
	check "$p -> service tcp" kc exec "$p" -- /agnhost connect "$vip:80" --timeout=3s
	check "$p -> service udp" kc exec "$p" -- /agnhost connect "$vip:81" --timeout=3s --protocol=udp
	check "$p -> API service" kc exec "$p" -- /agnhost connect "${SVC_CIDR%.*}.1:443" --timeout=3s
	check "$p logs" sh -c "ip netns exec $CP '$BIN/kubectl' --kubeconfig '$KUBECONFIG_ADMIN' logs $p | grep -q healthz"
done
for n in $(node_names); do
	check "node port on $n" in_cp "$BIN/clients" curl -f -m 3 "http://$(node_addr "$n"):30080/hostname"
done
exit $bad
