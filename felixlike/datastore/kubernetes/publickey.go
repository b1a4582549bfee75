package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/model"
)

// PublishKey writes the public key of this node's WireGuard device to the annotation of its Node.
func (s *Source) PublishKey(ctx context.Context, key model.PublicKey) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{model.PublicKeyAnnotation: key.String()}}})
	if err != nil {
		return err
	}
	err = s.clients.core.Patch(types.MergePatchType).Resource(kindNode.resource().Resource).Name(s.node).Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("annotate node %s: %w", s.node, err)
	}
	return nil
}

// KeyRights returns what PublishKey needs beside Rights. Only clusters with encryption grant it: an agent with it can replace
// the keys of other nodes.
func KeyRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{corev1.GroupName}, Resources: []string{"nodes"}, Verbs: []string{"patch"}}}
}
