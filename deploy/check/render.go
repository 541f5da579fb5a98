// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
)

const (
	chartDir     = "../helm/shunt"
	manifestPath = "../kubernetes/shunt.yaml"
)

// release is what `helm install NAME --namespace NAMESPACE --set SET` says.
type release struct {
	name, namespace string
	set             []string
}

// plain is the release that the manifest is made of. Who installs without Helm needs the namespace too.
var plain = release{"shunt", "shunt", []string{"namespace.create=true"}}

// header opens the manifest.
const header = `# SPDX-License-Identifier: Apache-2.0
# shunt on every node of a cluster: kubectl apply -f shunt.yaml, with the image that deploy/Containerfile makes in the place of shunt:latest.
# Code generated from deploy/helm/shunt by "make manifest". DO NOT EDIT.
`

// render gives the chart's objects, by the names of their templates, the way Helm does it.
func (r release) render() (map[string]string, error) {
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	given := map[string]any{}
	for _, s := range r.set {
		if err := strvals.ParseInto(s, given); err != nil {
			return nil, fmt.Errorf("reading --set %s: %w", s, err)
		}
	}
	if err := chartutil.ProcessDependencies(c, given); err != nil {
		return nil, err
	}
	values, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: r.name, Namespace: r.namespace, Revision: 1, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, fmt.Errorf("reading values: %w", err)
	}
	files, err := engine.Engine{Strict: true}.Render(c, values)
	if err != nil {
		return nil, fmt.Errorf("rendering: %w", err)
	}
	out := map[string]string{}
	for name, text := range files {
		if strings.TrimSpace(text) != "" && !strings.HasPrefix(path.Base(name), "_") {
			out[path.Base(name)] = text
		}
	}
	return out, nil
}

// order is that in which objects need each other.
var order = []string{"namespace.yaml", "serviceaccount.yaml", "daemonset.yaml"}

// manifest is all objects in one text.
func (r release) manifest() (string, error) {
	files, err := r.render()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != "NOTES.txt" && !slices.Contains(order, name) {
			return "", fmt.Errorf("the order of objects lacks %s", name)
		}
	}
	for _, name := range order {
		if text, ok := files[name]; ok {
			fmt.Fprintf(&b, "---\n%s\n", strings.Trim(text, "\n"))
		}
	}
	return b.String(), nil
}
