#!/bin/bash
# dns.sh start | stop: coredns in the cluster, behind the Service that pods ask for names. It knows no other names.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in
start) verb=(apply) ;;
stop) verb=(delete --ignore-not-found --wait) ;;
*) die "usage: dns.sh start | stop" ;;
esac
kc "${verb[@]}" -f - >/dev/null <<Y
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: kube-system, name: coredns}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: coredns}
rules:
- {apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns}
subjects: [{kind: ServiceAccount, namespace: kube-system, name: coredns}]
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: kube-system, name: coredns}
data:
  Corefile: |
    .:53 {
      errors
      health
      ready
      kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
      }
      cache 5
    }
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {namespace: kube-system, name: coredns}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      terminationGracePeriodSeconds: 5
      containers:
      - name: coredns
        image: kubelab.local/agnhost:1
        command: [/coredns, -conf, /etc/coredns/Corefile]
        ports: [{name: dns, containerPort: 53, protocol: UDP}, {name: dns-tcp, containerPort: 53}]
        readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
        volumeMounts: [{name: config, mountPath: /etc/coredns, readOnly: true}]
      volumes: [{name: config, configMap: {name: coredns}}]
---
apiVersion: v1
kind: Service
metadata: {namespace: kube-system, name: kube-dns}
spec:
  selector: {k8s-app: kube-dns}
  clusterIP: ${SVC_CIDR%.*}.10
  ipFamilyPolicy: PreferDualStack
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]
Y
[ "$1" = stop ] || kc -n kube-system rollout status ds/coredns --timeout=90s >/dev/null || die "coredns did not roll out"
