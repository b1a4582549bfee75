#!/bin/bash
# up.sh: starts the control plane in the network namespace kt-cp, and containerd, kubelet and kube-proxy of each node of
# NODES in namespaces of the node. With NODES="" there is an API server alone.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
[ -e "$RUN/pid" ] && die "already up (or not cleaned): run down.sh"
mkdir -p "$RUN"/{pid,log,node} "$RUN/etcd"
T0=$(now)

# --- underlay: every /24 of node addresses is a bridge inside kt-cp, which routes between them.
ip netns add $CP
in_cp ip link set lo up
in_cp ip address add $CP_ADDR/32 dev lo
in_cp sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
in_cp sh -c 'for k in arptables iptables ip6tables; do echo 0 >/proc/sys/net/bridge/bridge-nf-call-$k; done' 2>/dev/null || true
for n in $NODES; do
	name=${n%%=*} addr=${n#*=} net=${n#*=}; net=${net%.*}; third=${net##*.}
	br=br-$third
	in_cp ip link show "$br" >/dev/null 2>&1 || {
		in_cp ip link add "$br" type bridge
		in_cp ip address add "$net.1/24" dev "$br"
		in_cp ip -6 address add "fd00:30:$third::1/64" dev "$br" nodad
		in_cp ip link set "$br" up
	}
	ip netns add "kt-$name"
	in_cp ip link add "v-$name" type veth peer name eth0 netns "kt-$name"
	in_cp ip link set "v-$name" master "$br" up
	on="ip -n kt-$name"
	$on link set lo up
	$on link set eth0 up
	$on address add "$addr/24" dev eth0
	$on -6 address add "fd00:30:$third::${addr##*.}/64" dev eth0 nodad
	$on route add default via "$net.1"
	$on -6 route add default via "fd00:30:$third::1"
	ip netns exec "kt-$name" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
done

# --- control plane
"$BIN/tool" pki -dir "$RUN/pki" -server "https://$CP_ADDR:6443" \
	-sans "$CP_ADDR,127.0.0.1,${SVC_CIDR%.*}.1,localhost,kubernetes,kubernetes.default,kubernetes.default.svc,kubernetes.default.svc.cluster.local" \
	-nodes "$(node_names | paste -sd,)"
P=$RUN/pki
T=$(now)
spawn etcd "$BIN/etcd" --data-dir "$RUN/etcd" --log-level warn --logger zap \
	--listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
	--listen-peer-urls http://127.0.0.1:2380 ${ETCD_FLAGS:-}
spawn kube-apiserver "$BIN/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
	--bind-address=0.0.0.0 --secure-port=6443 --advertise-address=$CP_ADDR \
	--tls-cert-file="$P/apiserver.crt" --tls-private-key-file="$P/apiserver.key" --client-ca-file="$P/ca.crt" \
	--service-account-issuer=https://kubernetes.default.svc.cluster.local \
	--service-account-key-file="$P/sa.pub" --service-account-signing-key-file="$P/sa.key" \
	--service-cluster-ip-range="$ALL_SVCS" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
	--kubelet-client-certificate="$P/kubelet-client.crt" --kubelet-client-key="$P/kubelet-client.key" \
	--kubelet-preferred-address-types=InternalIP --allow-privileged=true \
	--requestheader-client-ca-file="$P/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
	--requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
	--requestheader-extra-headers-prefix=X-Remote-Extra- \
	--proxy-client-cert-file="$P/front-proxy-client.crt" --proxy-client-key-file="$P/front-proxy-client.key" \
	${APISERVER_FLAGS:-}
wait_for 120 kc get --raw /readyz || die "API server is not ready: $RUN/log/kube-apiserver.log"
echo "etcd + kube-apiserver ready: $(since "$T") s"

if [ -x "$BIN/kube-controller-manager" ]; then
	spawn kube-controller-manager "$BIN/kube-controller-manager" --kubeconfig="$P/controller-manager.kubeconfig" \
		--service-account-private-key-file="$P/sa.key" --root-ca-file="$P/ca.crt" --use-service-account-credentials=true \
		--cluster-signing-cert-file="$P/ca.crt" --cluster-signing-key-file="$P/ca.key" \
		--allocate-node-cidrs="$NODECIDRS" --cluster-cidr="$ALL_PODS" --service-cluster-ip-range="$ALL_SVCS" \
		--leader-elect=false --bind-address=127.0.0.1 --node-monitor-grace-period=20s
fi
[ -x "$BIN/kube-scheduler" ] && [ -n "$NODES" ] &&
	spawn kube-scheduler "$BIN/kube-scheduler" --kubeconfig="$P/scheduler.kubeconfig" --leader-elect=false --bind-address=127.0.0.1

# --- nodes
T=$(now)
kc create clusterrolebinding kubelab-proxy --clusterrole=system:node-proxier --user=system:kube-proxy >/dev/null
for name in $(node_names); do
	"$LAB/node.sh" start "$name"
done
for name in $(node_names); do
	wait_for 90 kc get node "$name" || die "node $name did not register: $RUN/log/$name-kubelet.log"
	echo "node $name registered: $(since "$T") s"
done
if [ "$CNI" = bridge ] && [ -n "$NODES" ]; then
	for name in $(node_names); do
		wait_for 30 sh -c "ip netns exec $CP '$BIN/kubectl' --kubeconfig '$KUBECONFIG_ADMIN' get node $name -o jsonpath='{.spec.podCIDR}' | grep -q /" ||
			die "node $name has no podCIDR"
		ranges=
		for cidr in $(kc get node "$name" -o jsonpath='{.spec.podCIDRs[*]}'); do
			case $cidr in *:*) f=-6 via=$(node_addr6 "$name") ;; *) f=-4 via=$(node_addr "$name") ;; esac
			for other in $(node_names); do
				[ "$other" = "$name" ] || ip $f -n "kt-$other" route replace "$cidr" via "$via" 2>/dev/null ||
					ip $f -n "kt-$other" route replace "$cidr" via "$(ip $f -n "kt-$other" route show default | awk '{print $3}')"
			done
			in_cp ip $f route replace "$cidr" via "$via"
			ranges+="${ranges:+, }[{\"subnet\": \"$cidr\"}]"
		done
		cat >"$RUN/node/$name/cni.conflist" <<-C
			{"cniVersion": "1.0.0", "name": "kubelab", "plugins": [
			  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
			   "ipam": {"type": "host-local", "ranges": [$ranges], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
			  {"type": "portmap", "capabilities": {"portMappings": true}}]}
		C
		"$LAB/node.sh" exec "$name" cp "$RUN/node/$name/cni.conflist" /etc/cni/net.d/10-kubelab.conflist
	done
	kc wait --for=condition=Ready node --all --timeout=90s >/dev/null
	echo "all nodes Ready: $(since "$T") s"
fi
echo "up: $(since "$T0") s"
