package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// NodeCondition returns a condition of this node's object, or nil if it has none of this type.
func (s *Source) NodeCondition(ctx context.Context, kind corev1.NodeConditionType) (*corev1.NodeCondition, error) {
	nodes := s.clients.dynamic.Resource(kindNode.resource())
	list, err := nodes.List(ctx, metav1.ListOptions{FieldSelector: metav1.ObjectNameField + "=" + s.node}) // the agent may list, not get
	if err != nil {
		return nil, fmt.Errorf("read conditions of node %s: %w", s.node, err)
	}
	for _, o := range list.Items {
		var n corev1.Node
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &n); err != nil {
			return nil, fmt.Errorf("read conditions of node %s: %w", s.node, err)
		}
		for _, c := range n.Status.Conditions {
			if n.Name == s.node && c.Type == kind {
				return &c, nil
			}
		}
	}
	return nil, nil
}

// SetNodeCondition writes a condition to this node's object. All other conditions stay as they are.
func (s *Source) SetNodeCondition(ctx context.Context, c corev1.NodeCondition) error {
	return s.patchCondition(ctx, c.Type, c)
}

// RemoveNodeCondition removes a condition of this node's object. It is no error if there is none.
func (s *Source) RemoveNodeCondition(ctx context.Context, kind corev1.NodeConditionType) error {
	return s.patchCondition(ctx, kind, map[string]any{"type": kind, "$patch": "delete"})
}

// patchCondition patches one element of the list of conditions, whose key is the type.
func (s *Source) patchCondition(ctx context.Context, kind corev1.NodeConditionType, c any) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{c}}})
	if err != nil {
		return err
	}
	r := s.clients.core.Patch(types.StrategicMergePatchType).Resource(kindNode.resource().Resource).Name(s.node).SubResource("status").Body(patch)
	if err := r.Do(ctx).Error(); err != nil {
		return fmt.Errorf("write condition %s of node %s: %w", kind, s.node, err)
	}
	return nil
}
