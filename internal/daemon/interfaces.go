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
// namespaces are served too, an exact name may be there, and where a service manager starts the daemon at boot it may be yet to come: then one that is not here is only worth
// a warning; so is one that is excluded, which errs towards Linux once it comes.
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
	lacks := func(name string) bool { return !strings.ContainsAny(name, "*?[\\") && !slices.Contains(names, name) }
	for _, name := range p.Exclude {
		if lacks(name) {
			log.Warn("an excluded interface is not in the daemon's own network namespace; it stays with Linux when it comes", "interface", name)
		}
	}
	for _, name := range p.Include {
		if !lacks(name) {
			continue
		}
		if elsewhere {
			log.Warn("no such interface in the daemon's own network namespace; it is served when it comes", "interface", name)
			continue
		}
		return api.Errorf(api.KindUsage, "there is no interface %q in this network namespace; there are %s (for one that comes later use a pattern like %q)",
			name, strings.Join(names, ", "), name+"*")
	}
	return nil
}
