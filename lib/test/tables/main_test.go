// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"testing"
)

// TestCommitted: the header is what the generator writes, and nobody has edited it.
func TestCommitted(t *testing.T) {
	have, err := os.ReadFile("../../include/shunt/crc32c_table.h")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, header()) {
		t.Error("crc32c_table.h is not what lib/test/tables writes: run `go generate` in lib/test")
	}
}
