// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/shuntnet/shunt/internal/api"
	"github.com/shuntnet/shunt/internal/graph"
)

// interfacesExist refuses interface names that cannot be meant: globs that do not parse, and exact names that no interface has. Where other
// namespaces are served too, an exact name may be there, and one that is not here is only worth a warning.
func interfacesExist(p graph.Policy, elsewhere bool, log *slog.Logger) error {
	all, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("listing interfaces: %w", err)
	}
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	for _, glob := range slices.Concat(p.Include, p.Exclude) {
		if _, err := path.Match(glob, ""); err != nil {
			return api.Errorf(api.KindUsage, "interface pattern %q: %v; a pattern has *, ? and [a-z]", glob, err)
		}
	}
	for _, name := range p.Include {
		if strings.ContainsAny(name, "*?[\\") || slices.Contains(names, name) {
			continue
		}
		if elsewhere {
			log.Warn("no such interface in the daemon's own network namespace", "interface", name)
			continue
		}
		return api.Errorf(api.KindUsage, "there is no interface %q in this network namespace; there are %s (for one that comes later use a pattern like %q)",
			name, strings.Join(names, ", "), name+"*")
	}
	return nil
}
