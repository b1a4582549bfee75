#!/bin/bash
# build.sh GROUP...: builds programs into $WORK/bin.
#   deb     etcd, containerd, runc, busybox, and a shell, nc and getent for the test image, out of Debian packages (nothing is installed)
#   kube    kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy, and the program of upstream's test image, agnhost
#   cni     the reference CNI plugins bridge, host-local, loopback, portmap
#   dns     coredns, with the plugins that a cluster needs
#   images  our own tools, and OCI archives of the images pause and agnhost
#   peer    the kube-proxy for measurements, compiled as upstream's
#   e2e     e2e.test and the ginkgo runner of the same version, and the image of a server that sends bad packets
# Without inlining and debug data, and with less collection of garbage, the compiler takes 40 % less time (62 CPU-s in place of 105 for felixctl).
# GOMODCACHE and GOCACHE are used; without them both are below $WORK.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
export GOMODCACHE=${GOMODCACHE:-$WORK/modcache} GOCACHE=${GOCACHE:-$WORK/gocache}
export CGO_ENABLED=0 GOFLAGS=-mod=mod GOTOOLCHAIN=local
export GOGC=400
quickly='all=-l -dwarf=false'
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
			cmd/kubelet cmd/kube-proxy test/e2e test/images/agnhost test/images/regression-issue-74839; do
			printf '\t_ "k8s.io/kubernetes/%s"\n' "$p"
		done
		echo ')'
	} >"$d/tools.go"
	(cd "$d" && go mod tidy -e >"$WORK/mod/tidy.log" 2>&1)
}

# kube PROGRAM...: go links the programs of one command side by side.
kube() {
	kubemod
	local ld="-s -w" p c t=$(now) packages=() how=(-trimpath -gcflags "$quickly")
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		ld+=" -X $p.gitVersion=v$K8S_VERSION -X $p.gitMajor=1 -X $p.gitMinor=${K8S_LIBS:2:2} -X $p.gitTreeState=archive"
	done
	cd "$WORK/mod/kube"
	for c in "$@"; do
		case $c in
		e2e.test) go test -c -vet=off "${how[@]}" -ldflags "$ld" -o "$BIN/$c" k8s.io/kubernetes/test/e2e ;;
		ginkgo) packages+=(github.com/onsi/ginkgo/v2/ginkgo) ;;
		agnhost | regression-issue-74839) packages+=("k8s.io/kubernetes/test/images/$c") ;;
		*) packages+=("k8s.io/kubernetes/cmd/$c") ;;
		esac
	done
	go build "${how[@]}" -ldflags "$ld" -o "$BIN/" "${packages[@]}"
	echo "$*: $(since "$t") s"
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

dns() {
	local d=$WORK/mod/coredns p t; t=$(now)
	mkdir -p "$d"
	printf 'module kubelab/coredns\n\ngo 1.25.0\n\nrequire github.com/coredns/coredns v%s\n' "$COREDNS_VERSION" >"$d/go.mod"
	{
		printf 'package main\n\nimport (\n\t"github.com/coredns/coredns/coremain"\n'
		for p in cache errors health hosts kubernetes log ready; do printf '\t_ "github.com/coredns/coredns/plugin/%s"\n' "$p"; done
		printf ')\n\nfunc main() { coremain.Run() }\n'
	} >"$d/main.go"
	cd "$d"
	go build -trimpath -gcflags "$quickly" -ldflags '-s -w' -o "$BIN/coredns" .
	echo "coredns: $(since "$t") s"
}

# tag IMAGE: the tag that this version of upstream's tests has of an image of theirs.
tag() {
	sed -n "s/.*configs\\[$1\\] = .*, \"\(.*\)\", \"\(.*\)\"}.*/registry.k8s.io\/e2e-test-images\/\1:\2/p" \
		"$GOMODCACHE/k8s.io/kubernetes@v$K8S_VERSION/test/utils/image/manifest.go"
}

tools() {
	cd "$LAB/../tool"
	GOFLAGS= go build -trimpath -o "$BIN/tool" .
	GOFLAGS= go build -trimpath -ldflags '-s -w' -o "$BIN/pause" ./pause
	GOFLAGS= go build -trimpath -ldflags '-s -w' -o "$BIN/clients" ./clients
}

deb() {
	mkdir -p "$WORK/deb" && cd "$WORK/deb"
	[ -x root/bin/nc.openbsd ] || {
		apt-get download -q etcd-server containerd runc busybox-static dash netcat-openbsd libbsd0 libmd0 libc-bin libc6
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
	# One image is all of upstream's that the specs run shells in.
	# Busybox's shell would run busybox's nc, whatever is in PATH; and its wget, being static, dies beside a libc.
	local a sh=() refs=() root=$WORK/deb/root
	for a in cat head ls touch dd sleep ping ip grep echo env hostname nslookup ps kill test seq date; do sh+=(-link "/bin/$a:busybox"); done
	for a in curl wget dig; do sh+=(-link "/bin/$a:clients"); done
	sh+=(-add "$root/bin/dash:/bin/sh" -add "$root/bin/nc.openbsd:/bin/nc" -add "$root/usr/bin/getent:/bin/getent")
	for a in "$root"/lib*/ld-linux-* "$root"/lib/*/lib{c.so.6,resolv.so.2} "$root"/usr/lib/*/lib{bsd,md}.so.0; do sh+=(-add "$a:${a#"$root"}"); done
	for a in crt key; do sh+=(-add "$GOMODCACHE/k8s.io/kubernetes@v$K8S_VERSION/test/images/agnhost/porter/localhost.$a:/localhost.$a"); done
	for a in Agnhost BusyBox JessieDnsutils; do refs+=(-ref "$(tag $a)"); done
	"$BIN/tool" image -o "$WORK/images/agnhost.tar" -ref kubelab.local/agnhost:1 "${refs[@]}" \
		-add "$BIN/agnhost:/agnhost" -add "$BIN/coredns:/coredns" -add "$BIN/busybox:/bin/busybox" -add "$BIN/clients:/bin/clients" "${sh[@]}" -entrypoint /agnhost -cmd pause
	echo "images: pause agnhost ${refs[*]}"
}

# specs: e2e.test with the image that no other part needs.
specs() {
	kube e2e.test ginkgo regression-issue-74839
	"$BIN/tool" image -o "$WORK/images/regression-issue-74839.tar" -ref "$(tag RegressionIssue74839)" \
		-add "$BIN/regression-issue-74839:/server" -entrypoint /server
}

[ $# -gt 0 ] || die "name a group: deb kube cni dns images peer e2e"
for g in "$@"; do
	case $g in
	deb) deb ;;
	kube) kube kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy agnhost ;;
	dns) dns ;;
	peer) quickly='' BIN=$WORK/peer kube kube-proxy ;;
	e2e) specs ;;
	cni) cni ;;
	images) tools; images ;;
	*) die "no group $g" ;;
	esac
done
