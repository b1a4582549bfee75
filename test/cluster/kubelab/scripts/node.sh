#!/bin/bash
# node.sh start NAME | stop NAME | exec NAME COMMAND...
# A node is a set of mount, pid, uts, ipc and cgroup namespaces inside the network namespace kt-NAME. Its pid 1 is this
# script ("init"); when that ends, every daemon and container of the node ends. The node has a /run of its own, and
# writable layers over /etc, /opt and /var: what a kubelet, a CNI plugin or a pod with a hostPath writes there does
# not reach the machine.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
verb=$1 name=$2; shift 2
D=$RUN/node/$name

cgroups() { # the v1 hierarchies this machine has mounted, and this process's place in each
	awk -F: '$2 != "" {print $2, $3}' /proc/self/cgroup
}

case $verb in
start)
	mkdir -p "$D"
	# Enter a cgroup of the node's own in each hierarchy; unshare -C makes it the root seen inside.
	(
		while read -r ctl path; do
			g=/sys/fs/cgroup/${ctl#name=}${path%/}/kt-$name
			mkdir -p "$g"
			if [ "$ctl" = cpuset ]; then
				cat "$g/../cpuset.cpus" >"$g/cpuset.cpus"
				cat "$g/../cpuset.mems" >"$g/cpuset.mems"
				echo 1 >"$g/cgroup.clone_children"
			fi
			echo "$g" >>"$D/cgroups"
			echo "$BASHPID" >"$g/cgroup.procs"
		done < <(cgroups)
		exec nsenter --net="/run/netns/kt-$name" unshare --mount --uts --ipc --pid --cgroup --fork --kill-child \
			"$0" init "$name"
	) >"$RUN/log/$name-init.log" 2>&1 </dev/null &
	echo $! >"$RUN/pid/node-$name"
	wait_for 60 test -e "$D/ready" || die "node $name: containerd is not up: $RUN/log/$name-*.log"
	;;
stop)
	stop "node-$name"
	;;
exec)
	outer=$(cat "$RUN/pid/node-$name")
	exec nsenter -t "$(pgrep -P "$outer")" --mount --net --uts --ipc --pid --cgroup "$@"
	;;
init)
	hostname "$name"
	mount --make-rprivate /
	mount -t proc proc /proc
	# The kubelet sets machine-wide sysctls. Give it plain files instead.
	for s in vm/overcommit_memory kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
		f=$D/sysctl/$s
		mkdir -p "${f%/*}"
		cat "/proc/sys/$s" >"$f"
		mount --bind "$f" "/proc/sys/$s"
	done
	mount -t sysfs sysfs /sys
	mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
	while read -r ctl _; do
		mkdir "/sys/fs/cgroup/${ctl#name=}"
		case $ctl in name=*) opt=none,$ctl ;; *) opt=$ctl ;; esac
		mount -t cgroup -o "$opt" cgroup "/sys/fs/cgroup/${ctl#name=}"
	done < <(cgroups)
	for d in etc opt var; do
		mkdir -p "$D/up-$d" "$D/wk-$d"
		mount -t overlay -o "lowerdir=/$d,upperdir=$D/up-$d,workdir=$D/wk-$d" overlay "/$d"
	done
	mount -t tmpfs -o mode=755 run /run
	for d in kubelet containerd; do # overlays do not nest: these are plain folders
		mkdir -p "$D/$d" "/var/lib/$d"
		mount --bind "$D/$d" "/var/lib/$d"
	done
	mount --make-rshared /
	mkdir -p /etc/cni/net.d /opt/cni/bin /etc/kubernetes /run/containerd /run/netns /var/log/pods /var/log/containers
	cp "$WORK"/cni-bin/* /opt/cni/bin/
	cp "$RUN/pki/ca.crt" "$RUN/pki/node-$name.kubeconfig" /etc/kubernetes/
	echo "nameserver 127.0.0.1" >/etc/kubernetes/resolv.conf
	cat >/etc/kubernetes/containerd.toml <<-C
		version = 2
		root = "/var/lib/containerd"
		state = "/run/containerd"
		disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
		[grpc]
		  address = "/run/containerd/containerd.sock"
		[plugins."io.containerd.grpc.v1.cri"]
		  sandbox_image = "kubelab.local/pause:1"
		  disable_apparmor = true
		  restrict_oom_score_adj = true
		  [plugins."io.containerd.grpc.v1.cri".cni]
		    bin_dir = "/opt/cni/bin"
		    conf_dir = "/etc/cni/net.d"
		    max_conf_num = 1
		  [plugins."io.containerd.grpc.v1.cri".containerd]
		    snapshotter = "overlayfs"
		    default_runtime_name = "runc"
		    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
		      runtime_type = "io.containerd.runc.v2"
		      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
		        SystemdCgroup = false
		        BinaryName = "$BIN/runc"
	C
	cat >/etc/kubernetes/kubelet.yaml <<-C
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/ca.crt}}
		authorization: {mode: Webhook}
		containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
		cgroupDriver: cgroupfs
		failCgroupV1: false
		failSwapOn: false
		clusterDNS: ["${SVC_CIDR%.*}.10"]
		clusterDomain: cluster.local
		resolvConf: /etc/kubernetes/resolv.conf
		imageGCHighThresholdPercent: 100
		evictionHard: {memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%", imagefs.inodesFree: "0%"}
		syncFrequency: 10s
		serializeImagePulls: false
	C
	export PATH=$BIN:/usr/sbin:/usr/bin:/sbin:/bin
	"$BIN/containerd" --config /etc/kubernetes/containerd.toml >"$RUN/log/$name-containerd.log" 2>&1 &
	wait_for 30 "$BIN/ctr" version
	for i in "$WORK"/images/*.tar; do "$BIN/ctr" -n k8s.io images import "$i"; done
	"$BIN/kubelet" --config=/etc/kubernetes/kubelet.yaml --kubeconfig="/etc/kubernetes/node-$name.kubeconfig" \
		--hostname-override="$name" --node-ip="$(node_addr "$name"),$(node_addr6 "$name")" --root-dir=/var/lib/kubelet \
		>"$RUN/log/$name-kubelet.log" 2>&1 &
	if [ "$PROXY" != none ]; then
		cp "$RUN/pki/proxy.kubeconfig" /etc/kubernetes/
		"$BIN/kube-proxy" --kubeconfig=/etc/kubernetes/proxy.kubeconfig --proxy-mode="$PROXY" --hostname-override="$name" \
			--cluster-cidr="$ALL_PODS" --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 \
			>"$RUN/log/$name-kube-proxy.log" 2>&1 &
	fi
	touch "$D/ready"
	while :; do wait -n || true; sleep 1; done
	;;
*) die "no verb $verb" ;;
esac
