package openflow

import "math"

// A cookie is owner (16 bits), pipeline version (8 bits) and content hash (40
// bits): identity and instructions.
const (
	ownerShift   = 48
	versionShift = 40
	hashMask     = 1<<versionShift - 1
	ownerBits    = uint64(math.MaxUint16) << ownerShift
)
