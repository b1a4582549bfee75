package deploy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// unpack returns the regular files of a tar, and the targets of symbolic links.
func unpack(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			files[strings.TrimPrefix(h.Name, "./")] = h.Linkname
		} else if h.Typeflag == tar.TypeReg {
			files[strings.TrimPrefix(h.Name, "./")] = string(text)
		}
	}
}

func unzip(t *testing.T, data string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// descriptor names a blob of an OCI layout; config and layers are those of the blob.
type descriptor struct {
	MediaType, Digest string
	Size              int
	Platform          struct{ Architecture string }
	Annotations       map[string]string
}

// layout reads an OCI layout and checks digest and size of all that is named.
type layout struct {
	t     *testing.T
	files map[string]string
}

func (l layout) blob(d descriptor, into any) string {
	l.t.Helper()
	text := l.files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
	if digestOf(text) != d.Digest || len(text) != d.Size {
		l.t.Fatalf("blob %+v: %d bytes, %s", d, len(text), digestOf(text))
	}
	if into != nil {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			l.t.Fatalf("%s: %v", text, err)
		}
	}
	return text
}

// script runs a script of deploy with an environment added.
func script(t *testing.T, path string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // it may compile everything
	defer cancel()
	c := exec.CommandContext(ctx, path)
	c.Env = append(os.Environ(), env...)
	c.WaitDelay = time.Second
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", path, err, out)
	}
}

// base writes a first layer that is not Debian.
func base(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "base.tar")
	var text bytes.Buffer
	if err := tar.NewWriter(&text).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestImage: the archive is a valid OCI layout of both architectures, and a second build,
// later and from another directory, has the same bytes.
func TestImage(t *testing.T) {
	var archives []string
	for i := range 2 {
		programs := filepath.Join(t.TempDir(), "programs")
		if err := os.MkdirAll(filepath.Join(programs, "usr/local/bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(programs, "usr/local/bin/felixlike-agent")
		if err := os.WriteFile(file, []byte("program"), 0o755); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(1_700_000_000+i), 0)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		b, out := base(t), filepath.Join(t.TempDir(), "image.tar")
		script(t, "image/build", "ARCHES=amd64 arm64", "VERSION=v0.1.0", "SOURCE_DATE_EPOCH=1700000000", "COMPRESS=yes", "OUT="+out,
			"IMAGE=registry.example.com/felixlike:v0.1.0", "BASE_amd64="+b, "BASE_arm64="+b, "PROGRAMS_amd64="+programs, "PROGRAMS_arm64="+programs)
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, string(text))
	}
	if archives[0] != archives[1] {
		t.Error("two builds differ")
	}

	l := layout{t, unpack(t, strings.NewReader(archives[0]))}
	var index, images struct{ Manifests []descriptor }
	if err := json.Unmarshal([]byte(l.files["index.json"]), &index); err != nil || len(index.Manifests) != 1 || l.files["oci-layout"] != "{\"imageLayoutVersion\":\"1.0.0\"}\n" {
		t.Fatalf("index %s, %v; layout %q", l.files["index.json"], err, l.files["oci-layout"])
	}
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != "registry.example.com/felixlike:v0.1.0" {
		t.Errorf("name %q", name)
	}
	l.blob(index.Manifests[0], &images)
	var arches []string
	for _, d := range images.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		var config struct {
			Architecture, Created string
			Config                struct{ Labels map[string]string }
			RootFS                struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		l.blob(d, &manifest)
		l.blob(manifest.Config, &config)
		if config.Architecture != d.Platform.Architecture || config.Created != "2023-11-14T22:13:20Z" ||
			config.Config.Labels["org.opencontainers.image.version"] != "v0.1.0" {
			t.Errorf("configuration %+v of %+v", config, d)
		}
		arches = append(arches, config.Architecture)
		for i, layer := range manifest.Layers {
			text := unzip(t, l.blob(layer, nil))
			if layer.MediaType != "application/vnd.oci.image.layer.v1.tar+gzip" || digestOf(text) != config.RootFS.DiffIDs[i] {
				t.Errorf("layer %+v unpacks to %s, want %s", layer, digestOf(text), config.RootFS.DiffIDs[i])
			}
			if i == 1 && unpack(t, strings.NewReader(text))["usr/local/bin/felixlike-agent"] != "program" {
				t.Errorf("layer %+v has no agent", layer)
			}
		}
	}
	if !slices.Equal(arches, []string{"amd64", "arm64"}) {
		t.Errorf("architectures %v", arches)
	}
}

// TestRelease builds a release for this machine and checks each file of it. The smallest
// program stands for all, and there are no packages of Debian: both take minutes.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	arch, out, programs := runtime.GOARCH, filepath.Join(t.TempDir(), "out"), t.TempDir()
	bin, plugins := filepath.Join(programs, "usr/local/bin"), filepath.Join(programs, "opt/cni/bin")
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.MkdirAll(plugins, 0o755)); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", plugins+"/", "../cmd/felixlike-cni")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	// As deploy/image/programs builds them.
	for _, name := range []string{"felixctl", "felixlike-agent"} {
		text, err := os.ReadFile(filepath.Join(plugins, "felixlike-cni"))
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, name), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("felixctl", filepath.Join(bin, "kubectl-felixlike")); err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "again")
	for _, out := range []string{out, again} {
		script(t, "release/build", "VERSION=v0.1.0", "IMAGE=registry.example.com/felixlike", "ARCHES="+arch, "OUT="+out, "BASE_"+arch+"="+base(t), "PROGRAMS_"+arch+"="+programs, "FELIXLAB_"+arch+"="+filepath.Join(bin, "felixlike-agent"))
	}
	file := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if second, err := os.ReadFile(filepath.Join(again, "SHA256SUMS")); err != nil || string(second) != file("SHA256SUMS") {
		t.Errorf("%v, a second build has the sums\n%sthe first\n%s", err, second, file("SHA256SUMS"))
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	sums := ""
	for _, e := range entries {
		if e.Name() != "SHA256SUMS" {
			sums += strings.TrimPrefix(digestOf(file(e.Name())), "sha256:") + "  " + e.Name() + "\n"
		}
	}
	if file("SHA256SUMS") != sums || len(entries) != 12 {
		t.Errorf("%d files; SHA256SUMS is\n%swant\n%s", len(entries), file("SHA256SUMS"), sums)
	}

	tools := unpack(t, strings.NewReader(unzip(t, file("felixctl-v0.1.0-linux-"+arch+".tar.gz"))))
	if tools["felixctl"] == "" || tools["kubectl-felixlike"] != "felixctl" {
		t.Errorf("felixctl of %d bytes, kubectl-felixlike is %q", len(tools["felixctl"]), tools["kubectl-felixlike"])
	}
	if page := tools["man/man1/felixctl-trace.1"]; !strings.Contains(page, "felixctl trace") || !strings.Contains(page, "v0.1.0") {
		t.Errorf("man/man1/felixctl-trace.1: %q", page)
	}
	mac := unpack(t, strings.NewReader(unzip(t, file("felixctl-v0.1.0-darwin-"+arch+".tar.gz"))))
	if magic := "\xcf\xfa\xed\xfe"; !strings.HasPrefix(mac["felixctl"], magic) || mac["kubectl-felixlike"] != "felixctl" || mac["man/man1/felixctl.1"] == "" {
		t.Errorf("felixctl for macOS of %d bytes, kubectl-felixlike is %q", len(mac["felixctl"]), mac["kubectl-felixlike"])
	}
	rest := unpack(t, strings.NewReader(unzip(t, file("felixlike-v0.1.0-linux-"+arch+".tar.gz"))))
	if rest["felixlike-agent"] == "" || rest["felixlike-cni"] == "" || rest["felixlab"] == "" || rest["felixctl"] != "" {
		t.Error("felixlike-v0.1.0 lacks a program")
	}

	// The manifests and the chart name the image of this release.
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal([]byte(unpack(t, strings.NewReader(file("felixlike-image-v0.1.0.tar")))["index.json"]), &index); err != nil {
		t.Fatal(err)
	}
	digest := index.Manifests[0].Digest
	image := "registry.example.com/felixlike:v0.1.0@" + digest
	for name, manifest := range map[string]string{"felixlike": "felixlike.yaml", "felixlike-ovs": "felixlike.yaml", "felixlike-uninstall": "felixlike-uninstall.yaml"} {
		set := daemonSets(t, filepath.Join(out, manifest))[name]
		if len(set.Spec.Template.Spec.Containers) == 0 {
			t.Errorf("%s has no DaemonSet %s", manifest, name)
		}
		for _, c := range append(set.Spec.Template.Spec.InitContainers, set.Spec.Template.Spec.Containers...) {
			if c.Image != image {
				t.Errorf("%s, %s: image %s, want %s", manifest, c.Name, c.Image, image)
			}
		}
		if name != "felixlike-uninstall" && set.Spec.Template.Labels["app.kubernetes.io/version"] != "v0.1.0" {
			t.Errorf("%s: labels %v", manifest, set.Spec.Template.Labels)
		}
	}
	chart := unpack(t, strings.NewReader(unzip(t, file("felixlike-chart-0.1.0.tgz"))))
	for name, want := range map[string]string{
		"felixlike/Chart.yaml": "version: 0.1.0\nappVersion: v0.1.0\n",
		// Also without a registry, where values.yaml has no digest.
		"felixlike/templates/felixlike.yaml": fmt.Sprintf(".Values.image.digest | default %q", digest),
		"felixlike/values.yaml":              fmt.Sprintf("  tag: v0.1.0\n  # \"sha256:...\": the image is named by it as well.\n  digest: %q\n", digest),
	} {
		if !strings.Contains(chart[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, chart[name])
		}
	}
	kustomize := unpack(t, strings.NewReader(unzip(t, file("felixlike-kustomize-v0.1.0.tar.gz"))))
	for _, name := range []string{"base/daemonset.yaml", "base/ovs.yaml"} {
		if !strings.Contains(kustomize[name], "image: "+image+"\n") {
			t.Errorf("%s has not image %s", name, image)
		}
	}

	var bill struct {
		BOMFormat  string
		Components []struct{ PURL string }
	}
	if err := json.Unmarshal([]byte(file("felixlike-v0.1.0.cdx.json")), &bill); err != nil || bill.BOMFormat != "CycloneDX" {
		t.Fatalf("SBOM: %v, format %q", err, bill.BOMFormat)
	}
	modules := 0
	for _, c := range bill.Components {
		if strings.HasPrefix(c.PURL, "pkg:golang/github.com/containernetworking/cni@v") || strings.HasPrefix(c.PURL, "pkg:golang/std@1.") {
			modules++
		}
	}
	if modules != 2 {
		t.Errorf("SBOM of %d components lacks the CNI library or the toolchain", len(bill.Components))
	}
	var provenance struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	if err := json.Unmarshal([]byte(file("felixlike-v0.1.0.provenance.json")), &provenance); err != nil || provenance.Type != "https://in-toto.io/Statement/v1" {
		t.Fatalf("provenance: %v, type %q", err, provenance.Type)
	}
	// All files but itself and the sums, and the image.
	if s := provenance.Subject; len(s) != len(entries)-1 || s[0].Name != "registry.example.com/felixlike:v0.1.0" || "sha256:"+s[0].Digest["sha256"] != digest {
		t.Errorf("provenance of %+v", s)
	}
	for _, s := range provenance.Subject[1:] {
		if want := strings.TrimPrefix(digestOf(file(s.Name)), "sha256:"); s.Digest["sha256"] != want {
			t.Errorf("provenance of %s: %v, want %s", s.Name, s.Digest, want)
		}
	}
	if from := provenance.Predicate.BuildDefinition.ResolvedDependencies; len(from) != 2 || len(from[0].Digest["gitCommit"]) != 40 {
		t.Errorf("provenance: made from %+v", from)
	}
	if text := file("CHANGELOG.md"); !strings.HasPrefix(text, "# felixlike v0.1.0\n") || !strings.Contains(text, digest) || !strings.Contains(text, "### ") {
		t.Errorf("CHANGELOG:\n%s", text)
	}
}
