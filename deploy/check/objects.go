// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// objects are those of a manifest, read strictly.
type objects struct {
	namespaces []core.Namespace
	accounts   []core.ServiceAccount
	sets       []apps.DaemonSet
}

// read takes a manifest apart. A field that the API does not have is an error, as is a kind that the chart has no business with.
func read(manifest string) (*objects, error) {
	var o objects
	for _, document := range strings.Split("\n"+manifest, "\n---\n") {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return nil, fmt.Errorf("reading %q: %w", document, err)
		}
		var err error
		switch kind.APIVersion + " " + kind.Kind {
		case " ": // comments alone
		case "v1 Namespace":
			err = add(&o.namespaces, document)
		case "v1 ServiceAccount":
			err = add(&o.accounts, document)
		case "apps/v1 DaemonSet":
			err = add(&o.sets, document)
		default:
			err = fmt.Errorf("nobody expects a %s of %s", kind.Kind, kind.APIVersion)
		}
		if err != nil {
			return nil, err
		}
	}
	return &o, nil
}

func add[T any](to *[]T, document string) error {
	var object T
	if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
		return fmt.Errorf("reading a %T: %w", object, err)
	}
	*to = append(*to, object)
	return nil
}
