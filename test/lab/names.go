package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/model"
)

const (
	// maxLabName keeps unix socket paths below the lab's folder within the
	// 108 bytes of sockaddr_un.
	maxLabName = 24
	maxPodPart = 40
)

var labName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

func checkName(name string) error {
	if len(name) > maxLabName || !labName.MatchString(name) {
		return fmt.Errorf("lab name %q: must be 1 to %d characters of a-z, 0-9 and hyphens", name, maxLabName)
	}
	return nil
}

func fabricNamespace(lab string) string { return "flx-" + lab + "-fabric" }

func nodeNamespace(lab, node string) string {
	return "flx-" + lab + "-" + labs.Bounded(node, labs.MaxNodePart)
}

func podNamespace(lab string, pod model.PodID) string {
	return "flx-" + lab + "-p-" + labs.Bounded(pod.Namespace+"-"+pod.Name+podSuffix(pod), maxPodPart)
}

// podSuffix separates pods with namespaces and names that join to the same text.
func podSuffix(pod model.PodID) string {
	if !strings.Contains(pod.Namespace+pod.Name, "-") {
		return ""
	}
	sum := sha256.Sum256([]byte(pod.String()))
	return "-" + hex.EncodeToString(sum[:])[:4]
}

// fabricPort is the name of a node's port on the fabric's bridge.
func fabricPort(node string) string { return "n-" + labs.Bounded(node, 13) }
