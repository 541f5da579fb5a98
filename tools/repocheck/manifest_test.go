// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// TestManifest: the manifest for Kubernetes was made of the chart as it is, and nobody edited it. What they say is checked by deploy/check.
func TestManifest(t *testing.T) {
	texts := map[string][]byte{}
	for _, f := range tree(t) {
		texts[f.Path] = f.Text
	}
	made := map[string]string{}
	for line := range strings.Lines(string(texts["deploy/helm/shunt.sum"])) {
		sum, path, _ := strings.Cut(strings.TrimSpace(line), "  ")
		made[path] = sum
	}
	if made["deploy/kubernetes/shunt.yaml"] == "" || made["deploy/helm/shunt/templates/daemonset.yaml"] == "" {
		t.Fatalf("deploy/helm/shunt.sum lacks the chart or the manifest: %v", made)
	}
	for path, text := range texts {
		of := strings.HasPrefix(path, "deploy/helm/shunt/") || strings.HasPrefix(path, "deploy/kubernetes/")
		if have := fmt.Sprintf("%x", sha256.Sum256(text)); of && made[path] != have {
			t.Errorf("%s is not what the manifest was made of, or what was made: run `make manifest`", path)
		}
		delete(made, path)
	}
	for path := range made {
		t.Errorf("%s is gone since the manifest was made: run `make manifest`", path)
	}
}
