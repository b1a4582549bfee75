#!/bin/bash
# down.sh: ends what up.sh started, by the recorded pids, and removes its network namespaces, its cgroups and the
# state of the cluster. Builds stay.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
[ -d "$RUN" ] || exit 0
for f in "$RUN"/pid/node-*; do [ -e "$f" ] && stop "$(basename "$f")"; done
for s in kube-scheduler kube-controller-manager kube-apiserver etcd; do stop $s; done
for d in "$RUN"/node/*/; do
	[ -d "$d" ] || continue
	n=$(basename "$d")
	ip netns del "kt-$n" 2>/dev/null
	[ -f "$d/cgroups" ] && while read -r g; do
		# The last processes of the node may still be leaving.
		for _ in $(seq 100); do
			find "$g" -depth -type d -exec rmdir {} + 2>/dev/null
			[ -d "$g" ] || break
			sleep 0.1
		done
	done <"$d/cgroups"
done
for n in $(node_names); do ip netns del "kt-$n" 2>/dev/null; done
ip netns del $CP 2>/dev/null
[ -n "${KEEP_LOGS:-}" ] && { rm -rf "$WORK/log-last"; cp -r "$RUN/log" "$WORK/log-last"; }
rm -rf "$RUN"
