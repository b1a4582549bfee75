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
	if !proves(cfg) {
		return nil
	}
	return verifier(cfg.RunDir).Check()
}

// verify returns the module of the proofs that the programmed state gives all packets the verdicts of the policies, if there are to be any.
func (a *agent) verify(v *driver.View) driver.Module {
	if !proves(a.cfg) {
		return driver.Module{}
	}
	return verify.New(v, verify.Options{Prove: verifier(a.cfg.RunDir).Prove, EveryChange: a.cfg.Verify == config.VerifyEveryChange}).Module()
}

// proves reports whether there are to be proofs.
func proves(cfg *config.Effective) bool {
	return cfg.Verify == config.VerifyOnResync || cfg.Verify == config.VerifyEveryChange
}

// verifier is the felixctl beside the agent.
func verifier(runDir string) verify.Child {
	// Without its own path, the agent takes felixctl from $PATH.
	self, _ := os.Executable()
	return verify.Child{Path: filepath.Join(filepath.Dir(self), "felixctl"), Socket: filepath.Join(runDir, control.SocketName)}
}
