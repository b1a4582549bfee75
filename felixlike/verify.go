package felixlike

import (
	"os"
	"path/filepath"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/verify"
)

// checkVerify returns an error if there are to be proofs, and no felixctl for them.
func checkVerify(cfg *config.Effective) error {
	if cfg.Verify != config.VerifyOnResync {
		return nil
	}
	return verifier(cfg.RunDir).Check()
}

// verify returns the module of the proofs that the programmed state gives all packets the verdicts of the policies, if there are to be any.
func (a *agent) verify(v *driver.View) driver.Module {
	if a.cfg.Verify != config.VerifyOnResync {
		return driver.Module{}
	}
	return verify.New(v, verify.Options{Prove: verifier(a.cfg.RunDir).Prove}).Module()
}

// verifier is the felixctl beside the agent.
func verifier(runDir string) verify.Child {
	// Without its own path, the agent takes felixctl from $PATH.
	self, _ := os.Executable()
	return verify.Child{Path: filepath.Join(filepath.Dir(self), "felixctl"), Socket: filepath.Join(runDir, control.SocketName)}
}
