// SPDX-License-Identifier: Apache-2.0

package docker

import "os/exec"

// needed are the programs of a Docker, and what they call.
var needed = []string{"docker", "dockerd", "containerd", "runc", "iptables", "ping", "nsenter"}

// lacking says which of them are missing.
func lacking() (names []string) {
	for _, name := range needed {
		if _, err := exec.LookPath(name); err != nil {
			names = append(names, name)
		}
	}
	return names
}
