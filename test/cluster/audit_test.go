package cluster

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// auditPolicy has the API server write down every request of felixlike's.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts:felixlike-system"]}
- {level: None}
`

// auditFlags returns the API server's flags for that.
func auditFlags(t *testing.T, k kit) []string {
	t.Helper()
	policy := filepath.Join(k.Work(), "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + filepath.Join(k.Work(), "run", "log", "audit.log")}
}

// request is one line of the audit log.
type request struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	ObjectRef  *struct {
		Resource    string `json:"resource"`
		APIGroup    string `json:"apiGroup"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// right returns the right that the request needs, in the spelling of rights; empty for
// discovery, which needs none.
func (r request) right() string {
	if r.ObjectRef == nil || r.ObjectRef.Resource == "" {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		if path == "/version" || path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/") {
			return ""
		}
		return r.Verb + " " + path
	}
	resource := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	return r.Verb + " " + resource + "." + r.ObjectRef.APIGroup
}

// testRBAC compares felixlike's requests to the API server, during all tests, with its
// rights: it requested nothing else, was denied nothing, and
// uses each right.
func testRBAC(t *testing.T, s *site) {
	granted := granted(t, s)
	used, denied := requests(t, s)
	t.Logf("granted: %s", strings.Join(granted, ", "))
	for _, right := range used {
		if !slices.Contains(granted, right) {
			t.Errorf("used without being granted: %s", right)
		}
	}
	for _, right := range denied {
		// An API server that has just started denies until it has read its rules.
		if !slices.Contains(granted, right) {
			t.Errorf("denied: %s", right)
		}
	}
	for _, right := range granted {
		// Events are for policies that cannot be implemented. The right to repeat an event is
		// used when the same event comes again. The status of a policy needs one that exists for some seconds.
		rare := strings.HasSuffix(right, " events.events.k8s.io") || strings.HasPrefix(right, "patch clusternetworkpolicies/status.")
		if !slices.Contains(used, right) && !rare {
			t.Errorf("granted but never used: %s", right)
		}
	}
}

// granted returns the rights of the roles bound to felixlike, those of its own namespace
// included.
func granted(t *testing.T, s *site) []string {
	t.Helper()
	var bindings rbacv1.ClusterRoleBindingList
	if err := s.Get(t.Context(), &bindings, "clusterrolebindings"); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, b := range bindings.Items {
		if !slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Namespace == system }) {
			continue
		}
		var role rbacv1.ClusterRole
		if err := s.Get(t.Context(), &role, "clusterrole", b.RoleRef.Name); err != nil {
			t.Fatal(err)
		}
		all = append(all, rightsOf(role.Rules)...)
	}
	var inside rbacv1.RoleList
	if err := s.Get(t.Context(), &inside, "roles", "--namespace", system); err != nil {
		t.Fatal(err)
	}
	for _, role := range inside.Items {
		all = append(all, rightsOf(role.Rules)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// rightsOf spells what rules allow.
func rightsOf(rules []rbacv1.PolicyRule) []string {
	var all []string
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					all = append(all, verb+" "+resource+"."+group)
				}
			}
		}
	}
	return all
}

// requests reads the audit log.
func requests(t *testing.T, s *site) (used, denied []string) {
	t.Helper()
	file, err := os.Open(s.Log("audit"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	count := 0
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("audit log: %v", err)
		}
		count++
		right := r.right()
		if r.ResponseStatus.Code == 401 || r.ResponseStatus.Code == 403 {
			denied = append(denied, right)
			continue
		}
		if right != "" {
			used = append(used, right)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests in the audit log", count)
	slices.Sort(used)
	slices.Sort(denied)
	return slices.Compact(used), slices.Compact(denied)
}
