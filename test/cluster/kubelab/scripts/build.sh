#!/bin/bash
# build.sh GROUP...: builds programs into $WORK/bin.
#   deb     etcd, containerd, runc, busybox, out of Debian packages (nothing is installed)
#   cp      kube-apiserver kube-controller-manager kubectl
#   sched   kube-scheduler
#   node    kubelet kube-proxy
#   cni     the reference CNI plugins bridge, host-local, loopback, portmap
#   agnhost the program of upstream's test image
#   images  our own tools, and OCI archives of the images pause and agnhost
#   e2e     e2e.test and the ginkgo runner of the same version
# GOMODCACHE and GOCACHE are used; without them both are below $WORK.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
export GOMODCACHE=${GOMODCACHE:-$WORK/modcache} GOCACHE=${GOCACHE:-$WORK/gocache}
export CGO_ENABLED=0 GOFLAGS=-mod=mod GOTOOLCHAIN=local
mkdir -p "$BIN" "$WORK/mod"

# kubemod: a go.mod around k8s.io/kubernetes. That module requires its staging libraries as v0.0.0, so
# each needs a replace with the published version.
kubemod() {
	local d=$WORK/mod/kube m
	[ -f "$d/go.sum" ] && return
	mkdir -p "$d"
	m=$(cd /tmp && GOFLAGS= go mod download -json "k8s.io/kubernetes@v$K8S_VERSION" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
	{
		printf 'module kubelab/kube\n\ngo 1.25.0\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$K8S_VERSION"
		awk -v v="v$K8S_LIBS" '/^k8s\.io\/|^\tk8s\.io\// && $2 == "v0.0.0" {print "\t" $1 " => " $1 " " v}' "$m" | sort -u
		echo ')'
	} >"$d/go.mod"
	{
		printf '//go:build tools\n\npackage tools\n\nimport (\n'
		for p in cmd/kube-apiserver cmd/kube-controller-manager cmd/kube-scheduler cmd/kubectl \
			cmd/kubelet cmd/kube-proxy test/e2e test/images/agnhost; do
			printf '\t_ "k8s.io/kubernetes/%s"\n' "$p"
		done
		echo ')'
	} >"$d/tools.go"
	(cd "$d" && go mod tidy -e >"$WORK/mod/tidy.log" 2>&1)
}

kube() {
	kubemod
	local ld="-s -w" p c
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		ld+=" -X $p.gitVersion=v$K8S_VERSION -X $p.gitMajor=1 -X $p.gitMinor=${K8S_LIBS:2:2} -X $p.gitTreeState=archive"
	done
	cd "$WORK/mod/kube"
	for c in "$@"; do
		local t; t=$(now)
		case $c in
		e2e.test) go test -c -vet=off -trimpath -ldflags "$ld" -o "$BIN/$c" k8s.io/kubernetes/test/e2e ;;
		ginkgo) go build -trimpath -ldflags '-s -w' -o "$BIN/$c" github.com/onsi/ginkgo/v2/ginkgo ;;
		agnhost) go build -trimpath -ldflags "$ld" -o "$BIN/$c" k8s.io/kubernetes/test/images/agnhost ;;
		*) go build -trimpath -ldflags "$ld" -o "$BIN/$c" "k8s.io/kubernetes/cmd/$c" ;;
		esac
		echo "$c: $(since "$t") s, $(($(stat -c %s "$BIN/$c") / 1000000)) MB"
	done
}

cni() {
	local d=$WORK/mod/cni t; t=$(now)
	mkdir -p "$d" "$WORK/cni-bin"
	printf 'module kubelab/cni\n\ngo 1.24.0\n\nrequire github.com/containernetworking/plugins v%s\n' "$CNIP_VERSION" >"$d/go.mod"
	cd "$d"
	for p in main/bridge main/loopback ipam/host-local meta/portmap; do
		GOFLAGS=-mod=mod go build -trimpath -ldflags '-s -w' -o "$WORK/cni-bin/${p#*/}" "github.com/containernetworking/plugins/plugins/$p"
	done
	echo "cni plugins: $(since "$t") s"
}

tools() {
	cd "$LAB/../tool"
	GOFLAGS= go build -trimpath -o "$BIN/tool" .
	GOFLAGS= go build -trimpath -ldflags '-s -w' -o "$BIN/pause" ./pause
	GOFLAGS= go build -trimpath -ldflags '-s -w' -o "$BIN/minicurl" ./curl
}

deb() {
	mkdir -p "$WORK/deb" && cd "$WORK/deb"
	[ -x root/usr/bin/containerd ] || {
		apt-get download -q etcd-server containerd runc busybox-static
		for f in *.deb; do dpkg-deb -x "$f" root; done
	}
	install root/usr/bin/etcd root/usr/bin/containerd root/usr/bin/containerd-shim-runc-v2 root/usr/bin/ctr \
		root/usr/sbin/runc root/bin/busybox "$BIN"
	echo "deb: etcd containerd runc busybox"
}

images() {
	[ -x "$BIN/tool" ] || tools
	mkdir -p "$WORK/images"
	"$BIN/tool" image -o "$WORK/images/pause.tar" -ref kubelab.local/pause:1 -ref registry.k8s.io/pause:3.10.1 \
		-add "$BIN/pause:/pause" -entrypoint /pause
	if [ -x "$BIN/agnhost" ]; then
		local tag sh=()
		tag=$(sed -n 's/.*configs\[Agnhost\] = .*"agnhost", "\(.*\)"}.*/\1/p' \
			"$GOMODCACHE/k8s.io/kubernetes@v$K8S_VERSION/test/utils/image/manifest.go")
		for a in sh cat ls sleep wget nc ping ip grep echo env hostname ps kill; do sh+=(-link "/bin/$a:busybox"); done
		"$BIN/tool" image -o "$WORK/images/agnhost.tar" -ref "registry.k8s.io/e2e-test-images/agnhost:$tag" -ref kubelab.local/agnhost:1 \
			-add "$BIN/agnhost:/agnhost" -add "$BIN/busybox:/bin/busybox" -add "$BIN/minicurl:/bin/curl" "${sh[@]}" -entrypoint /agnhost -cmd pause
		echo "images: pause agnhost:$tag"
	fi
}

[ $# -gt 0 ] || die "name a group: deb cp sched node cni agnhost images e2e"
for g in "$@"; do
	case $g in
	deb) deb ;;
	cp) kube kube-apiserver kube-controller-manager kubectl ;;
	sched) kube kube-scheduler ;;
	node) kube kubelet kube-proxy ;;
	agnhost) kube agnhost ;;
	e2e) kube e2e.test ginkgo ;;
	cni) cni ;;
	images) tools; images ;;
	*) die "no group $g" ;;
	esac
done
