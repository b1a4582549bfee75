package workloads

import "fmt"

// The shapes are those of pkg/controller/networkpolicy's performance tests in
// antrea-io/antrea: counts, labels, selectors, policyTypes. All policies
// isolate both directions and have at most one rule, of ingress. Differences:
//
//   - Addresses are distinct and out of a /24 for each node, where Antrea's
//     are any 32 random bits: the oracle wants one pod an address.
//   - Names come from this package's fixed seed.
//   - Pods are Running, where Antrea's have no phase.

// smallNamespace is one of 25,000 namespaces of four pods: two pairs with a
// policy each, which its pods are subject and peer of, and one policy that
// isolates all.
func smallNamespace(b *builder, _ int) {
	namespace := b.name("")
	b.namespace(namespace, map[string]string{"app": namespace})
	b.policy(namespace, "default-deny-all", nil, nil, nil)
	pod := 0
	for _, app := range []string{"1", "2"} {
		labels := map[string]string{"app-" + app: "scale-" + app}
		b.policy(namespace, "np-"+app, labels, labels, nil)
		for range 2 {
			pod++
			b.pod(namespace, fmt.Sprintf("pod%d", pod), labels)
		}
	}
}

// largeNamespace is one of 100 namespaces of 1,000 pods: 100 applications of
// ten pods with a policy each, and one policy that isolates all.
func largeNamespace(b *builder, _ int) {
	namespace := b.name("")
	b.namespace(namespace, map[string]string{"app": namespace})
	b.policy(namespace, "default-deny-all", nil, nil, nil)
	for i := range 100 {
		labels := map[string]string{fmt.Sprintf("app-%d", i): fmt.Sprintf("scale-%d", i)}
		b.policy(namespace, fmt.Sprintf("np-%d", i), labels, labels, nil)
		for j := range 10 {
			b.pod(namespace, fmt.Sprintf("pod-%d-%d", i, j), labels)
		}
	}
}

// oneNamespace is one of 10,000 pods with one label, in one namespace, and one
// of 10,000 policies, each of which selects all of them as subjects and peers.
func oneNamespace(b *builder, _ int) {
	namespace := b.single()
	labels := map[string]string{"app-1": "scale-1"}
	b.policy(namespace, b.name("np-"), labels, labels, nil)
	b.pod(namespace, b.name("pod-"), labels)
}

// pair is one of 5,000 pairs of pods in one namespace; each pod has its own label
// and policy, which lets it receive from the other one only.
func pair(b *builder, _ int) {
	namespace := b.single()
	one, two := map[string]string{"app": b.name("scale-")}, map[string]string{"app": b.name("scale-")}
	b.policy(namespace, b.name("np-"), one, two, nil)
	b.policy(namespace, b.name("np-"), two, one, nil)
	b.pod(namespace, b.name("pod-"), one)
	b.pod(namespace, b.name("pod-"), two)
}

// companyNamespace is one of 1,000 namespaces of 100 companies: ten
// applications of ten pods with a policy each, which lets in the pods of the
// application in all namespaces of the company.
func companyNamespace(b *builder, unit int) {
	company := fmt.Sprintf("company-%d", unit%100)
	namespace := b.name(company + "-")
	namespaceLabels := map[string]string{"company": company}
	b.namespace(namespace, namespaceLabels)
	for j := range 10 {
		labels := map[string]string{"app": fmt.Sprintf("scale-%d", j)}
		b.policy(namespace, fmt.Sprintf("np-%d", j), labels, labels, namespaceLabels)
		for k := range 10 {
			b.pod(namespace, fmt.Sprintf("pod-%d-%d", j, k), labels)
		}
	}
}
