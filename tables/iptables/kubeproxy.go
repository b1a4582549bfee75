package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// LegacyKubeProxy returns the families in which the legacy variant has kube-proxy's chain KUBE-SERVICES. It reads only tables in use.
func LegacyKubeProxy(ctx context.Context, netns int) (found []model.Family, err error) {
	t := newTools(Legacy, kernelFamilies(), netns)
	for _, f := range kernelFamilies() {
		names, err := legacyTables(netns, f)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, tableNAT.String()) {
			continue
		}
		switch err := t.find(ctx); {
		case errors.Is(err, exec.ErrNotFound):
			return nil, fmt.Errorf("tables of iptables-legacy are in use, and its programs are missing: %w", err)
		case err != nil:
			return nil, err
		}
		out, err := t.dump(ctx, f, "-t", tableNAT.String())
		if err != nil {
			return nil, err
		}
		if parseActs(string(out)).chains["KUBE-SERVICES"] {
			found = append(found, f)
		}
	}
	return found, nil
}
