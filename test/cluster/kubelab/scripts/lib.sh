# The settings of the scripts, and functions that they share. Source it; set WORK first.
#
#   WORK       folder for builds, caches and the state of the cluster; needed
#   NODES      "name=address ..." one word per node; the /24 of an address is
#              its underlay subnet, and nodes in one /24 share a bridge
#   PROXY      kube-proxy mode: iptables, nftables or none
#   CNI        bridge (the reference plugins bridge and host-local, with static routes)
#              or none (nothing in /etc/cni/net.d)
#   NODECIDRS  true: the controller manager hands out node.spec.podCIDR
: "${WORK:?set WORK to a scratch folder}"
: "${NODES=n1=172.30.1.11 n2=172.30.1.12}"
: "${PROXY:=iptables}"
: "${CNI:=bridge}"
: "${NODECIDRS:=true}"
: "${POD_CIDR:=10.244.0.0/16}"
: "${SVC_CIDR:=10.96.0.0/16}"
: "${POD_CIDR6:=fd00:10:244::/48}"
: "${SVC_CIDR6:=fd00:10:96::/112}"
export NODES PROXY CNI NODECIDRS POD_CIDR SVC_CIDR POD_CIDR6 SVC_CIDR6
ALL_PODS=$POD_CIDR,$POD_CIDR6
ALL_SVCS=$SVC_CIDR,$SVC_CIDR6

K8S_VERSION=1.35.4
K8S_LIBS=0.35.4
CNIP_VERSION=1.9.1
COREDNS_VERSION=1.15.0

LAB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BIN=$WORK/bin
RUN=$WORK/run
CP=kt-cp
CP_ADDR=172.30.0.1
KUBECONFIG_ADMIN=$RUN/pki/admin.kubeconfig

die() { echo "kubelab: $*" >&2; exit 1; }
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN{printf "%.1f", b-a}'; }

# wait_for SECONDS COMMAND...: polls until the command succeeds.
wait_for() {
	local until=$(($(date +%s) + $1)); shift
	until "$@" >/dev/null 2>&1; do
		[ "$(date +%s)" -lt "$until" ] || return 1
		sleep 0.2
	done
}

in_cp() { ip netns exec $CP "$@"; }
kc() { in_cp "$BIN/kubectl" --kubeconfig "$KUBECONFIG_ADMIN" "$@"; }

node_names() { local n; for n in $NODES; do echo "${n%%=*}"; done; }
node_addr6() { local a; a=$(node_addr "$1"); local n=${a%.*}; echo "fd00:30:${n##*.}::${a##*.}"; }
node_addr() { local n; for n in $NODES; do if [ "${n%%=*}" = "$1" ]; then echo "${n#*=}"; fi; done; }

# spawn NAME COMMAND...: starts a daemon in kt-cp with its log and pid under $RUN.
# "ip netns exec" replaces itself by the command, so $! is the daemon.
spawn() {
	local name=$1; shift
	ip netns exec $CP "$@" >"$RUN/log/$name.log" 2>&1 </dev/null &
	echo $! >"$RUN/pid/$name"
}

# stop NAME: ends what spawn started, by its pid. Hard: the state is thrown away.
stop() {
	local f=$RUN/pid/$1 p
	[ -f "$f" ] || return 0
	p=$(cat "$f")
	kill -9 "$p" 2>/dev/null
	for _ in $(seq 100); do grep -qs '^State:[[:space:]]*[A-Ya-z]' "/proc/$p/status" || break; sleep 0.05; done
	rm -f "$f"
}
