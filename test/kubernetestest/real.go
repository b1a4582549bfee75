package kubernetestest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Programs returns the folder with etcd and kube-apiserver: the one that
// FELIXLIKE_CLUSTER_WORK names, or where test/cluster builds them.
func Programs() (string, error) {
	work := os.Getenv("FELIXLIKE_CLUSTER_WORK")
	if work == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		work = filepath.Join(cache, "felixlike", "kubelab")
	}
	bin := filepath.Join(work, "bin")
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return "", fmt.Errorf("no real API server here (test/cluster builds one): %w", err)
		}
	}
	return bin, nil
}

// StartAPIServer starts etcd and a real kube-apiserver with RBAC on free ports of the
// loopback interface, until the test ends, and returns how an administrator reaches it.
// It skips the test, saying why, where the programs are not there.
func StartAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	bin, err := Programs()
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	const token = "administrator"
	key := filepath.Join(dir, "key.pem")
	writeKey(t, key)
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client, peer, secure := freeAddress(t), freeAddress(t), freeAddress(t)
	_, port, err := net.SplitHostPort(secure)
	if err != nil {
		t.Fatal(err)
	}
	start(t, filepath.Join(dir, "etcd.log"), filepath.Join(bin, "etcd"),
		"--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls=http://"+client, "--advertise-client-urls=http://"+client,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	start(t, filepath.Join(dir, "kube-apiserver.log"), filepath.Join(bin, "kube-apiserver"),
		"--etcd-servers=http://"+client, "--cert-dir="+filepath.Join(dir, "certs"), "--bind-address=127.0.0.1", "--secure-port="+port,
		"--service-account-issuer=https://127.0.0.1", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--authorization-mode=RBAC", "--token-auth-file="+tokens, "--service-cluster-ip-range=10.250.0.0/24",
		"--disable-admission-plugins=ServiceAccount")
	config := &rest.Config{Host: "https://" + secure, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	ready(t, config, filepath.Join(dir, "kube-apiserver.log"))
	return config
}

// ready waits until the API server has begun.
func ready(t *testing.T, config *rest.Config, log string) {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		_, err := c.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(log)
			t.Fatalf("the API server is not ready: %v\n%s", err, text[max(0, len(text)-2000):])
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// start starts a program and ends it with the test.
func start(t *testing.T, log, program string, args ...string) {
	t.Helper()
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
	})
}

// freeAddress returns an address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func writeKey(t *testing.T, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
