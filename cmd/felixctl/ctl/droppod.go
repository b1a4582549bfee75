package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/felixlike/felixlike/felixlike/control"
)

// warnOfAbsentPod says if the pod that drops are filtered by is not on the agent's node:
// its name may be misspelt.
func warnOfAbsentPod(ctx context.Context, agent *control.Client, pod string, w io.Writer) {
	if pod == "" {
		return
	}
	s, err := agent.Status(ctx)
	if err != nil || hasPod(s.Endpoints, pod) {
		return // drops are reported all the same
	}
	fmt.Fprintf(w, "pod %s is not on node %s: only its packets from and to pods of this node are shown\n", pod, s.Node)
}

func hasPod(endpoints []control.Endpoint, pod string) bool {
	return slices.ContainsFunc(endpoints, func(e control.Endpoint) bool { return e.Namespace+"/"+e.Name == pod })
}
