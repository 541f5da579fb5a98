// SPDX-License-Identifier: Apache-2.0

package bpfobj

import "bytes"

// AloneXDP and AloneTC are the objects that `shunt compile` completes.
func AloneXDP() []byte { return bytes.Clone(_AloneXDPBytes) }

// AloneTC is the object for TC.
func AloneTC() []byte { return bytes.Clone(_AloneTCBytes) }
