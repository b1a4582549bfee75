package agentflag

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/felixlike/control"
)

// completionTime bounds the wait of a completion for the agent.
const completionTime = 2 * time.Second

// PodFlag completes a flag by the pods that the agent knows, of the whole cluster.
func (t *Target) PodFlag(c *cobra.Command, flag string) {
	t.completed(c, flag, func(p control.Pod) string { return p.ID.String() })
}

// NamespaceFlag completes a flag by the namespaces that have pods.
func (t *Target) NamespaceFlag(c *cobra.Command, flag string) {
	t.completed(c, flag, func(p control.Pod) string { return p.ID.Namespace })
}

// completed completes a flag by a text of each pod. Without an answer there are no words.
func (t *Target) completed(c *cobra.Command, flag string, text func(control.Pod) string) {
	// The caller has made the flag.
	_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		var words []string
		for _, p := range t.pods(c) {
			if w := text(p); strings.HasPrefix(w, word) {
				words = append(words, w)
			}
		}
		slices.Sort(words)
		return slices.Compact(words), cobra.ShellCompDirectiveNoFileComp
	})
}

// pods asks the agent for the pods of the cluster, in a whole lab that of its first node.
func (t *Target) pods(c *cobra.Command) []control.Pod {
	if t.resolve(c.Flags().Changed("socket"), c.Flags().Changed("lab")) != nil {
		return nil
	}
	if t.Lab != "" && t.Node == "" {
		nodes, err := labs.Nodes(t.Root, t.Lab)
		if err != nil || len(nodes) == 0 {
			return nil
		}
		t.Node = nodes[0]
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	m, err := control.NewClient(t.Socket()).Model(ctx)
	if err != nil {
		return nil
	}
	return m.Pods
}
