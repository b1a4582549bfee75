package names_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/iptables"
)

// The longest names that the kernel and OVSDB take, without the terminating zero.
const (
	nftName       = 255 // NFT_NAME_MAXLEN - 1, for chains, sets and maps
	xtName        = 28  // XT_EXTENSION_MAXNAMELEN - 1
	ipsetName     = 31  // IPSET_MAXNAMELEN - 1
	interfaceName = 15  // IFNAMSIZ - 1; OVSDB names ports by their interfaces
)

// kind is one kind of names in a space in which each name may exist only once.
type kind struct {
	name    string
	pattern string
	samples []string
}

// Every generated name of every kind is within the limit of its space, is not cut, and
// has a form that no other kind of the space has.
func TestKindsOfNames(t *testing.T) {
	const hash64 = `[A-Za-z0-9_-]`
	groups := kind{"group", `^[anp]` + hash64 + `{23}-[46]$`, nil}
	for _, letter := range []string{"a", "n", "p"} {
		for _, f := range model.Families() {
			for _, hash := range []string{strings.Repeat("9", 23), "in-shop-" + strings.Repeat("-", 15), "out-a/b-_" + strings.Repeat("x", 14)} {
				groups.samples = append(groups.samples, ipsets.Name(model.GroupID(letter+strings.ReplaceAll(hash, "/", "_")), f))
			}
		}
	}
	fixedSets, maps := kind{name: "static set"}, kind{name: "dispatch map"}
	for _, f := range model.Families() {
		fixedSets.samples = append(fixedSets.samples, rules.PodNetworksSet(f), rules.HairpinSet(f), rules.EgressSet(f))
		fixedSets.samples = append(fixedSets.samples, rules.ListMap(model.Ingress, f), rules.ListMap(model.Egress, f), rules.IdentityMap(f), rules.NetworkMap(f), rules.GrantsSet, rules.AnyPortGrantsSet)
		maps.samples = append(maps.samples, rules.DispatchMap(model.Ingress, f), rules.DispatchMap(model.Egress, f))
	}
	fixedSets.pattern, maps.pattern = `^((pod-networks|hairpin|egress|lists-in|lists-out|identities|networks)-[46]|grants(-any-port)?)$`, `^(to-pods|judge-egress)-[46]$`

	nft, nftParts := chainsOf(rules.NFTablesNameLength, 27)
	xt, xtParts := chainsOf(rules.IPTablesNameLength, 15)
	check(t, "chains of nftables", nftName, nil, nft...)
	check(t, "chains of iptables", xtName, iptables.KernelName, xt...)
	check(t, "sets of nftables", nftName, nil, groups, fixedSets, maps, nftParts)
	// The driver needs one more character for a set that it builds beside another.
	check(t, "ipsets", ipsetName-1, ipsets.KernelName, groups, fixedSets, xtParts)

	ports := kind{name: "port of the node", pattern: `^(flx|br)-`, samples: []string{model.GatewayPort, model.TunnelPort, ovsdb.PhysicalBridge}}
	pods := kind{name: "pod", pattern: `^` + model.PodInterfacePrefix + `[a-z0-9]{0,3}-[0-9a-f]{8}$`}
	for _, name := range []string{"a", "....", "gw0", "x" + strings.Repeat("-y", 126), strings.Repeat("0", 253)} {
		pods.samples = append(pods.samples, cni.HostInterface(model.PodID{Namespace: strings.Repeat("n", 63), Name: name}))
	}
	check(t, "interfaces", interfaceName, nil, ports, pods)
}

// chainsOf returns the kinds of chains of a renderer, and the sets of parts of its common
// chains.
func chainsOf(length, hash int) (chains []kind, parts kind) {
	r := rules.NewRenderer(model.GatewayPort, length)
	named := func(prefix string) string { return `^` + prefix + `-.*-[A-Za-z0-9_-]{` + fmt.Sprint(hash) + `}$` }
	kinds := []kind{
		{"static chain", `^(forward|prerouting|judge-egress|judge-outside|to-pods|postrouting|allowed|passed|no-service|(denied|rejected)-(in|out)|answer|allowed-out|common-(in|out)|granted-(in|out)|` +
			`from-switch|from-outside|rewritten|input|judge-own-node|guard-(forward|prerouting|input))$`, []string{
			rules.ChainForward, rules.ChainPrerouting, rules.ChainEgress, rules.ChainOutside, rules.ChainToPods, rules.ChainSources,
			rules.ChainAllowed, rules.ChainNoService, rules.ChainPassed, rules.ChainDeniedIn, rules.ChainDeniedOut, rules.ChainRejectedIn, rules.ChainRejectedOut, rules.ChainAnswer, rules.ChainGrantedIn, rules.ChainGrantedOut, rules.ChainAllowedOut, rules.ChainCommonIn,
			rules.ChainCommonOut, rules.ChainFromSwitch, rules.ChainFromOutside, rules.ChainRewritten, rules.ChainGuardForward,
			rules.ChainGuardPrerouting, rules.ChainGuardInput, rules.ChainInput, rules.ChainOwnNode,
		}},
		{"chain of a tree", `^((to|from)-([0-9a-f.]+/[0-9]+|[A-Za-z0-9_./-]*\.\.)|[tf]-[A-Za-z0-9_-]+)$`, treeChains(r)},
	}
	lists := kind{"list of policies", named(`(pods-)?(in|out)`), nil}
	admins := kind{"admin list", named(`t(in|out)`), nil}
	ownNodes := kind{"list to the own node", named(`own`), nil}
	parts = kind{"part of the common chain", `^[a-z-]+-.*-[A-Za-z0-9_-]{` + fmt.Sprint(hash) + `}\.[46]$`, nil}
	if !r.SetsWithRules() {
		parts.pattern = `^[a-z]+-[A-Za-z0-9_-]{` + fmt.Sprint(hash) + `}\.[46][a-z2-7]{4}$`
	}
	for tier, letter := range map[model.Tier]string{model.TierAdmin: "a", model.TierNetworkPolicy: "p", model.TierBaseline: "b"} {
		policies := kind{"policy of tier " + letter, named(letter + `(in|out)`), nil}
		for _, id := range []model.PolicyID{
			{Tier: tier, Namespace: "x", Name: "a"},
			{Tier: tier, Name: "a"},
			{Tier: tier, Name: strings.Repeat("a-in-", 50) + "a"},
			{Tier: tier, Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p.", 126) + "p"},
		} {
			for _, d := range model.Directions() {
				policies.samples = append(policies.samples, r.PolicyChain(id, d))
				lists.samples = append(lists.samples, r.AppliedChain(d, model.Applied{NetworkPolicies: []model.PolicyID{id}}),
					r.AppliedChain(d, model.Applied{NetworkPolicies: make([]model.PolicyID, 1000)}))
				for _, f := range model.Families() {
					own := r.OwnNodePart(model.Applied{Admin: []model.PolicyID{id}})
					ownNodes.samples = append(ownNodes.samples, tables.Target(own.Action))
					for _, p := range []rules.Part{own, r.PolicyPart(d, id), r.PodsPart(d, model.Applied{NetworkPolicies: []model.PolicyID{id}}), r.AdminPart(d, []model.PolicyID{id})} {
						set := rules.PartSet(p.Set, f)
						if !r.SetsWithRules() {
							set += rules.SetVersion(nil, 0)
							if rules.WithoutVersion(set) != rules.PartSet(p.Set, f) {
								panic(set)
							}
						}
						parts.samples = append(parts.samples, set)
					}
				}
				if tier == model.TierAdmin {
					admins.samples = append(admins.samples, tables.Target(r.AdminPart(d, []model.PolicyID{id}).Action))
				}
			}
		}
		kinds = append(kinds, policies)
	}
	return append(kinds, lists, admins, ownNodes), parts
}

// treeChains returns the names of chains of dispatch trees, short and long.
func treeChains(r *rules.Renderer) []string {
	var all []string
	note := func(chains []tables.Chain) {
		for _, c := range chains {
			all = append(all, c.Name)
		}
	}
	for _, d := range model.Directions() {
		for _, first := range []string{"10.9.0.0", "255.255.255.0", "fd00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:f000"} {
			a := netip.MustParseAddr(first)
			addresses, interfaces := rules.NewAddressTree(r.Names, d, model.FamilyOf(a)), rules.NewInterfaceTree(r.Names, d)
			for n := range 64 {
				addresses.Set(a, tables.Accept{})
				_ = interfaces.Set(fmt.Sprintf("fx-pods%08d", n), tables.Accept{})
				a = a.Next()
			}
			note(addresses.Changes().Chains)
			note(interfaces.Changes().Chains)
		}
	}
	return all
}

// check checks the kinds of a name space. kernel returns the kernel's name for one of
// ours: it may add a prefix, nothing else.
func check(t *testing.T, space string, limit int, kernel func(string) string, kinds ...kind) {
	t.Helper()
	for _, k := range kinds {
		if len(k.samples) == 0 {
			t.Errorf("%s: no name of kind %q was looked at", space, k.name)
		}
		for _, sample := range k.samples {
			name := sample
			if kernel != nil {
				name = kernel(sample)
			}
			if len(name) > limit || !strings.HasSuffix(name, sample) {
				t.Errorf("%s: %s %q is cut, or longer than %d: %q", space, k.name, sample, limit, name)
			}
			for _, other := range kinds {
				if is := regexp.MustCompile(other.pattern).MatchString(sample); is != (other.name == k.name) {
					t.Errorf("%s: %s %q is of the form of kind %q: %t", space, k.name, sample, other.name, is)
				}
			}
		}
	}
}
