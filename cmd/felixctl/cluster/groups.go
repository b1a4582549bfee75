package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// sameText is a text that one or more nodes have. A fault that all nodes share is printed
// once.
type sameText struct {
	text string
	// nodes are sorted.
	nodes []string
}

// texts collects texts of nodes.
type texts []sameText

func (t *texts) add(node, text string) {
	i := slices.IndexFunc(*t, func(s sameText) bool { return s.text == text })
	if i < 0 {
		*t = append(*t, sameText{text: text})
		i = len(*t) - 1
	}
	if at, known := slices.BinarySearch((*t)[i].nodes, node); !known {
		(*t)[i].nodes = slices.Insert((*t)[i].nodes, at, node)
	}
}

// named names some of a cluster's nodes, at most three by name.
func named(nodes []string, of int) string {
	const most = 3
	switch {
	case len(nodes) == of && of > 1:
		return fmt.Sprintf("all %d nodes", of)
	case len(nodes) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(nodes[:most], ", "), len(nodes)-most)
	}
	return strings.Join(nodes, ", ")
}
