// SPDX-License-Identifier: Apache-2.0

// Command gen writes the C enum and the document of the reason list from the Go table.
package main

import (
	"log"
	"os"

	"github.com/shuntnet/shunt/internal/reason"
)

func main() {
	// go generate runs in the package's folder.
	for path, text := range map[string]string{
		"../../bpf/include/reasons.h": reason.Header(),
		"../../docs/reasons.md":       reason.Markdown(),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
