// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"

	"github.com/shuntnet/shunt/internal/model/ruleset"
)

// num is the content of a register as a number: what the kernel compares byte by byte is then compared as a number. host says
// that the bytes lie in the machine's order, which on a big-endian machine is the same.
func num(b []byte, host bool) ruleset.Value {
	if host && littleEndian {
		b = slices.Clone(b)
		slices.Reverse(b)
	}
	return ruleset.Bytes(b)
}

var littleEndian = nativeUint32([]byte{1, 0, 0, 0}) == 1

// shift moves a number n bits to the right, or -n to the left.
func shift(v ruleset.Value, n int) ruleset.Value {
	switch {
	case n <= -128 || n >= 128:
		return ruleset.Value{}
	case n <= -64:
		return ruleset.Value{Hi: v.Lo << (-n - 64)}
	case n < 0:
		return ruleset.Value{Hi: v.Hi<<-n | v.Lo>>(64+n), Lo: v.Lo << -n}
	case n == 0:
		return v
	case n < 64:
		return ruleset.Value{Hi: v.Hi >> n, Lo: v.Lo>>n | v.Hi<<(64-n)}
	}
	return ruleset.Value{Lo: v.Hi >> (n - 64)}
}

// bitsAt are width one bits, the lowest at position lo.
func bitsAt(lo, width int) ruleset.Value { return shift(ruleset.Max(width), -lo) }

func isZero(v ruleset.Value) bool { return v == ruleset.Value{} }
