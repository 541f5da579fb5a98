// SPDX-License-Identifier: Apache-2.0

package image

import "github.com/shuntnet/shunt/internal/model/ruleset"

// Knows says whether images can ask for a field; conditions on others leave their packets to Linux.
func Knows(f ruleset.Field) bool {
	_, device := sideOf(f)
	_, dim := dimOf[f]
	_, value := valueOf[f]
	switch f {
	case ruleset.EtherSrc, ruleset.EtherDst, ruleset.NFProto, ruleset.EtherType, ruleset.PacketType, ruleset.SrcAddrType, ruleset.DstAddrType, ruleset.CTProto, ruleset.CTOrigSrc6, ruleset.CTOrigDst6:
		return true
	}
	return device || dim || value
}
