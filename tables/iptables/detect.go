package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// usage says which programs use one variant on this host.
type usage struct {
	// absent is why the variant cannot be used, or nil.
	absent error
	// kubelet, others and ours say that it has rules of the kubelet, of other programs, of us.
	kubelet, others, ours bool
}

// override says how to have it otherwise.
const override = "set iptables.variant to legacy or nft to choose otherwise"

// Detect chooses the variant that this host uses, and says why and how to choose
// otherwise. Rules of both variants apply to every packet, so ours belong to
// where the node's other programs have theirs: an accept in one variant cannot
// undo a drop in the other, and the tools of one do not show the other. It
// refuses to choose where others use both and nothing separates them. netns is
// a descriptor as in Options.
func Detect(ctx context.Context, netns int) (Variant, string, error) {
	all := kernelFamilies()
	found := map[Variant]usage{}
	for _, v := range []Variant{Legacy, NFT} {
		u, err := look(ctx, v, all, netns)
		if err != nil {
			return Auto, "", fmt.Errorf("detect the iptables variant: %w", err)
		}
		found[v] = u
	}
	v, why, err := choose(found, preferred(ctx))
	if err != nil {
		return Auto, "", fmt.Errorf("detect the iptables variant: %w", err)
	}
	return v, why + "; " + override, nil
}

// look finds the users of a variant. It changes nothing, and loads no kernel module for
// an unused table.
func look(ctx context.Context, v Variant, all []model.Family, netns int) (usage, error) {
	found := newTools(v, all, netns)
	err := found.find(ctx)
	if errors.Is(err, exec.ErrNotFound) {
		return usage{absent: err}, nil
	}
	if err != nil {
		return usage{}, err
	}
	var u usage
	for _, f := range all {
		s, err := found.read(ctx, f)
		var exit *exitError
		if errors.As(err, &exit) {
			// The programs are there, but not their half of the kernel.
			return usage{absent: err}, nil
		}
		if err != nil {
			return usage{}, err
		}
		u.kubelet = u.kubelet || s.kubelet
		u.others = u.others || s.others > 0 || len(s.hidden) > 0
		for k := range s.tables {
			u.ours = u.ours || len(s.tables[k].chains) > 0
		}
	}
	return u, nil
}

// preferred returns the variant of the plain iptables program, which is the
// distribution's or the administrator's choice; nft if there is none.
func preferred(ctx context.Context) Variant {
	path, err := exec.LookPath("iptables-restore")
	if err != nil {
		return NFT
	}
	out, err := run(ctx, 0, nil, nil, path, "--version")
	if err != nil {
		return NFT
	}
	return variantOf(string(out))
}

// choose picks the variant by the usage of both.
func choose(found map[Variant]usage, preferred Variant) (Variant, string, error) {
	legacy, nft := found[Legacy], found[NFT]
	switch {
	case legacy.absent != nil && nft.absent != nil:
		return Auto, "", fmt.Errorf("neither variant can be used: %w", errors.Join(legacy.absent, nft.absent))
	case legacy.absent != nil:
		return NFT, fmt.Sprintf("iptables variant nft: the other cannot be used (%v)", legacy.absent), nil
	case nft.absent != nil:
		return Legacy, fmt.Sprintf("iptables variant legacy: the other cannot be used (%v)", nft.absent), nil
	}
	for _, sign := range []struct {
		of        func(usage) bool
		why, both string
	}{
		{
			func(u usage) bool { return u.kubelet }, "the kubelet keeps its chains there",
			"the kubelet has its chains (" + strings.Join(kubeletChains, ", ") + ") in both variants, in one of them perhaps from before a change: remove the stale ones",
		},
		{
			func(u usage) bool { return u.others }, "other programs have their rules there, and none in the other variant",
			"other programs have rules in both variants, and nothing shows which one this node uses",
		},
	} {
		switch a, b := sign.of(legacy), sign.of(nft); {
		case a && b:
			return Auto, "", fmt.Errorf("%s; %s", sign.both, override)
		case a:
			return Legacy, "iptables variant legacy: " + sign.why, nil
		case b:
			return NFT, "iptables variant nft: " + sign.why, nil
		}
	}
	switch {
	case legacy.ours && !nft.ours:
		return Legacy, "iptables variant legacy: our own rules are there, and nobody else has any", nil
	case nft.ours && !legacy.ours:
		return NFT, "iptables variant nft: our own rules are there, and nobody else has any", nil
	}
	return preferred, fmt.Sprintf("iptables variant %s: nobody has rules in either, and the program iptables-restore is of that variant", preferred), nil
}
