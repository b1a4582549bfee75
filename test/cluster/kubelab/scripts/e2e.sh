#!/bin/bash
# e2e.sh FOCUS [SKIP]: runs upstream's end-to-end specs on the cluster, PROCS at a time. $WORK/e2e-report has the
# report in JUnit's form and the log.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
[ $# -ge 1 ] || die "usage: e2e.sh FOCUS-REGEXP [SKIP-REGEXP]"
out=$WORK/e2e-report
mkdir -p "$out"
t=$(now)
args=(--kubeconfig="$KUBECONFIG_ADMIN" --kubectl-path="$BIN/kubectl" --provider=skeleton
	--disable-log-dump --minStartupPods=0 --allowed-not-ready-nodes=0 --num-nodes="$(node_names | wc -l)"
	--delete-namespace-on-failure=true)
if [ "${PROCS:-1}" -gt 1 ]; then
	in_cp "$BIN/ginkgo" --procs="$PROCS" --no-color --focus="$1" ${2:+--skip="$2"} --timeout=2h \
		--output-dir="$out" --junit-report=junit.xml "$BIN/e2e.test" -- "${args[@]}" >"$out/log" 2>&1
else
	in_cp "$BIN/e2e.test" "${args[@]}" --ginkgo.no-color --ginkgo.focus="$1" ${2:+--ginkgo.skip="$2"} --ginkgo.timeout=2h \
		--ginkgo.junit-report="$out/junit.xml" >"$out/log" 2>&1
fi
rc=$?
grep -E '^(Ran |SUCCESS|FAIL!)|^  ?\[FAIL\]' "$out/log"
echo "e2e: rc=$rc, $(since "$t") s"
exit $rc
