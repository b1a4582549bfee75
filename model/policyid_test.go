package model

import "testing"

// TestPolicyIDs: policies of all APIs have different identities, and names that people can read.
func TestPolicyIDs(t *testing.T) {
	ids := map[string]PolicyID{
		"networkpolicy/ns/p":                            {Tier: TierNetworkPolicy, Namespace: "ns", Name: "p"},
		"clusternetworkpolicy/a":                        {Tier: TierAdmin, Name: "a"},
		"clusternetworkpolicy/b":                        {Tier: TierBaseline, Name: "b"},
		"egressnetworkpolicy.network.openshift.io/ns/p": {Tier: TierAdmin, API: EgressNetworkPolicy, Namespace: "ns", Name: "p"},
		"clusternetworkpolicy.crd.antrea.io/p":          {Tier: TierAdmin, API: AntreaCluster, Name: "p"},
		"clusternetworkpolicy.crd.antrea.io/p#2":        {Tier: TierAdmin, API: AntreaCluster, Name: "p", Part: 2},
		"clusternetworkpolicy.crd.antrea.io/p@ns":       {Tier: TierAdmin, API: AntreaCluster, Name: "p", Within: "ns"},
		"clusternetworkpolicy.crd.antrea.io/p#2@ns":     {Tier: TierAdmin, API: AntreaCluster, Name: "p", Part: 2, Within: "ns"},
		"networkpolicy.crd.antrea.io/ns/p":              {Tier: TierAdmin, API: Antrea, Namespace: "ns", Name: "p"},
		"networkpolicy.crd.antrea.io/ns/p#1":            {Tier: TierAdmin, API: Antrea, Namespace: "ns", Name: "p", Part: 1},
	}
	ids["isolation/ns"] = IsolationOf("ns")
	identities := map[string]PolicyID{}
	for text, id := range ids {
		if id.String() != text {
			t.Errorf("%+v: %s, want %s", id, id, text)
		}
		if other, taken := identities[id.Identity()]; taken {
			t.Errorf("%s and %s have one identity", id, other)
		}
		identities[id.Identity()] = id
		for _, other := range ids {
			if (id.Compare(other) == 0) != (id == other) || id.Compare(other) != -other.Compare(id) {
				t.Errorf("%s and %s compare as %d", id, other, id.Compare(other))
			}
		}
	}
	if got := ids["networkpolicy.crd.antrea.io/ns/p#1"].Object().String(); got != "networkpolicy.crd.antrea.io/ns/p" {
		t.Error(got)
	}
}
