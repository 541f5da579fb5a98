// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	core "k8s.io/api/core/v1"
)

// shunt is the container that a release makes, and what is around it.
func shunt(t *testing.T, r release) (*objects, core.PodSpec, core.Container) {
	t.Helper()
	text, err := r.manifest()
	if err != nil {
		t.Fatal(err)
	}
	o, err := read(text)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if len(o.sets) != 1 || len(o.accounts) != 1 || len(o.sets[0].Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("not one DaemonSet with one container and one ServiceAccount:\n%s", text)
	}
	pod := o.sets[0].Spec.Template.Spec
	return o, pod, pod.Containers[0]
}

// TestLint: Helm has nothing to say against the chart, apart from its wish for a picture.
func TestLint(t *testing.T) {
	for _, values := range []map[string]any{{}, {"strict": true, "metrics": map[string]any{"enabled": true, "host": "node"}, "namespace": map[string]any{"create": true}, "detachOnStop": true}} {
		for _, m := range lint.All(chartDir, values, "shunt", true).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("with %v: %s", values, m)
			}
		}
	}
}

// TestManifestIsCurrent: the manifest is the chart with its defaults, and its namespace.
func TestManifestIsCurrent(t *testing.T) {
	have, err := os.ReadFile(manifestPath)
	if err != nil {
		t.Fatal(err)
	}
	want, err := plain.manifest()
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != header+want {
		t.Errorf("%s is not what the chart says: run `make manifest`", manifestPath)
	}
	without, err := release{"shunt", "shunt", nil}.manifest()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(want, without) || strings.Count(want, "---\n") != strings.Count(without, "---\n")+1 {
		t.Errorf("the chart's defaults give more or less than the manifest without its namespace:\n%s", without)
	}
	if o, err := read(string(have)); err != nil {
		t.Error(err)
	} else if len(o.namespaces) != 1 || o.namespaces[0].Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
		t.Errorf("the manifest's namespace would not admit its pods: %+v", o.namespaces)
	}
}

// TestStrictReading: what the API does not have is noticed, else the other tests prove little.
func TestStrictReading(t *testing.T) {
	text, err := plain.manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range [][2]string{{"hostNetwork: true", "hostNetworks: true"}, {"hostPID: true", "hostPID: true\n      hostPID: true"}, {"kind: ServiceAccount", "kind: Pod"}, {"maxSurge: 0", "maxSurge: {}"}} {
		if !strings.Contains(text, edit[0]) {
			t.Errorf("the manifest has no %q", edit[0])
		} else if _, err := read(strings.Replace(text, edit[0], edit[1], 1)); err == nil {
			t.Errorf("%q is taken for a good manifest", edit[1])
		}
	}
}

// TestPrivileges: the capabilities are those of the systemd unit, and the pod gets nothing from the cluster.
func TestPrivileges(t *testing.T) {
	unit, err := os.ReadFile("../shunt.service")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(unit), "\nCapabilityBoundingSet=")
	list, _, _ = strings.Cut(list, "\n")
	want := strings.Fields(strings.ReplaceAll(list, "CAP_", ""))
	o, pod, c := shunt(t, plain)
	var have []string
	for _, capability := range c.SecurityContext.Capabilities.Add {
		have = append(have, string(capability))
	}
	slices.Sort(want)
	slices.Sort(have)
	if len(want) < 4 || !slices.Equal(have, want) {
		t.Errorf("capabilities %v, the systemd unit has %v", have, want)
	}
	if s := c.SecurityContext; *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
		t.Errorf("more than it needs: %+v", s)
	}
	if *o.accounts[0].AutomountServiceAccountToken || *pod.AutomountServiceAccountToken || pod.ServiceAccountName != o.accounts[0].Name {
		t.Error("the pod gets a token for an API that it never asks")
	}
	if !pod.HostNetwork || !pod.HostPID {
		t.Error("it is not in the node's network, or does not see its switches change")
	}
	if pod.PriorityClassName != "system-node-critical" || !slices.Contains(pod.Tolerations, core.Toleration{Operator: core.TolerationOpExists}) || pod.NodeSelector["kubernetes.io/os"] != "linux" {
		t.Errorf("it is not on every Linux node: %q, %+v, %v", pod.PriorityClassName, pod.Tolerations, pod.NodeSelector)
	}
}

// TestMounts: pins outlive the pod, at the place where the daemon looks for them, whatever that is called on the node.
func TestMounts(t *testing.T) {
	for _, r := range []release{plain, {"shunt", "kube-system", []string{"runtimeDir=/var/run/other", "bpfDir=/sys/fs/bpf/other"}}} {
		_, pod, c := shunt(t, r)
		runtime := strings.TrimPrefix(c.Args[1], "--runtime-dir=")
		at := map[string]string{} // path in the container: path on the node
		for _, m := range c.VolumeMounts {
			i := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name })
			if i < 0 {
				t.Fatalf("no volume %s", m.Name)
			}
			at[m.MountPath] = pod.Volumes[i].HostPath.Path
		}
		if len(at) != len(pod.Volumes) || at[runtime] != runtime || !strings.HasPrefix(at[path.Join(runtime, "bpf")], "/sys/fs/bpf/") || at["/run/xtables.lock"] != "/run/xtables.lock" {
			t.Errorf("mounted are %v, the daemon's folder is %s", at, runtime)
		}
		for _, p := range []*core.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if !slices.Equal(p.Exec.Command, []string{"/shunt", "status", "--runtime-dir=" + runtime}) {
				t.Errorf("a probe asks %q", p.Exec.Command)
			}
		}
	}
}

// variations are values and what they make of the command line.
var variations = []struct {
	set  string
	args []string
}{
	{"", nil},
	{"strict=true", []string{"--strict"}},
	{"interfaces={eth*,flannel.1,cni0,veth*}", []string{"--interfaces=eth*,flannel.1,cni0,veth*"}},
	{"exclude={wg*}", []string{"--exclude=wg*"}},
	{"hook=tc", []string{"--hook=tc"}},
	{"watchdog=800ms", []string{"--watchdog=800ms"}},
	{"logLevel=debug,logFormat=json", []string{"--log-level=debug", "--log-format=json"}},
	{"metrics.enabled=true", []string{"--metrics=127.0.0.1:9464"}},
	{"metrics.enabled=true,metrics.host=node,metrics.port=9999", []string{"--metrics=[$(NODE_IP)]:9999"}},
	{"extraArgs={--watchdog=1s}", []string{"--watchdog=1s"}},
}

// TestArguments: values become options, and the daemon that this tree builds takes them.
func TestArguments(t *testing.T) {
	program := path.Join(t.TempDir(), "shunt")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program, "./cmd/shunt") // as make build does, whose work is kept
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building shunt: %v: %s", err, out)
	}
	for _, v := range variations {
		r := plain
		r.set = append(slices.Clone(r.set), v.set)
		_, _, c := shunt(t, r)
		want := append([]string{"run", "--runtime-dir=/run/shunt"}, v.args...)
		if !slices.Equal(c.Args, want) {
			t.Errorf("%q makes %q, want %q", v.set, c.Args, want)
		}
		args := slices.Clone(c.Args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "$(NODE_IP)", "192.0.2.1")
		}
		// --help is read after the options before it, which have to be good ones.
		if out, err := exec.Command(program, append(args, "--help")...).CombinedOutput(); err != nil {
			t.Errorf("shunt %q: %v: %s", args, err, out)
		}
	}
	if exec.Command(program, "run", "--no-such-option", "--help").Run() == nil || exec.Command(program, "run", "--hook=none", "--help").Run() == nil {
		t.Error("shunt takes any option before --help: this test sees nothing")
	}
}

// TestVariations: another name and namespace, an image by its digest, an address of the node's, leaving nothing behind.
func TestVariations(t *testing.T) {
	o, pod, c := shunt(t, release{"edge", "kube-system", []string{"image.repository=registry.example/net/shunt", "image.digest=sha256:" + strings.Repeat("ab", 32), "image.pullSecrets={one,two}"}})
	if s := o.sets[0]; s.Namespace != "kube-system" || o.accounts[0].Namespace != "kube-system" || s.Name != "edge-shunt" || pod.ServiceAccountName != "edge-shunt" || len(o.namespaces) != 0 {
		t.Errorf("in another namespace: %s/%s, account %s", s.Namespace, s.Name, pod.ServiceAccountName)
	}
	if c.Image != "registry.example/net/shunt@sha256:"+strings.Repeat("ab", 32) {
		t.Errorf("image %s", c.Image)
	}
	if len(o.accounts[0].ImagePullSecrets) != 2 {
		t.Errorf("secrets %v", o.accounts[0].ImagePullSecrets)
	}
	for key, value := range o.sets[0].Spec.Selector.MatchLabels {
		if o.sets[0].Spec.Template.Labels[key] != value {
			t.Errorf("the DaemonSet would not find its own pods: %s", key)
		}
	}
	_, _, c = shunt(t, release{"shunt", "shunt", []string{"metrics.enabled=true,metrics.host=node,metrics.port=9999"}})
	if len(c.Ports) != 1 || c.Ports[0].ContainerPort != 9999 || c.Ports[0].HostPort != 9999 || len(c.Env) != 1 || c.Env[0].ValueFrom.FieldRef.FieldPath != "status.hostIP" {
		t.Errorf("metrics: ports %+v, environment %+v", c.Ports, c.Env)
	}
	_, _, c = shunt(t, plain)
	if len(c.Ports) != 0 || c.Lifecycle != nil {
		t.Errorf("by default: ports %+v, %+v: a pod that ends leaves what the next adopts", c.Ports, c.Lifecycle)
	}
	_, _, c = shunt(t, release{"shunt", "shunt", []string{"detachOnStop=true"}})
	if c.Lifecycle == nil || !slices.Equal(c.Lifecycle.PreStop.Exec.Command, []string{"/shunt", "stop", "--detach", "--runtime-dir=/run/shunt"}) {
		t.Errorf("detachOnStop: %+v", c.Lifecycle)
	}
	notes, err := release{"shunt", "shunt", nil}.render()
	if err != nil || !strings.Contains(notes["NOTES.txt"], "detachOnStop=true") {
		t.Errorf("the notes do not say how to remove it: %v", err)
	}
}

// TestSchemaRefuses: a mistake in values is told before anything reaches a cluster.
func TestSchemaRefuses(t *testing.T) {
	for _, set := range []string{
		"hook=fast", "strict=maybe", "strickt=true", "image.digest=sha256:12", "image.repository=", "image.repository=Shunt Image", "interfaces=eth0", "interfaces={a b}", "watchdog=soon",
		"metrics.port=0", "metrics.port=70000", "metrics.host=everywhere", "metrics.enable=true", "logLevel=loud", "runtimeDir=run/shunt", "bpfDir=/sys/fs/bpf/", "extraArgs={--netns=*}",
		"extraArgs={--runtime-dir=/tmp}", "maxUnavailable=0", "image.pullPolicy=Sometimes", "nodeSelector.a.b=c", "resources=none",
	} {
		if text, err := (release{"shunt", "shunt", []string{set}}).manifest(); err == nil {
			t.Errorf("%q is taken:\n%s", set, text)
		} else if !strings.Contains(err.Error(), "schema") {
			t.Errorf("%q is refused, but not by the schema: %v", set, err)
		}
	}
}
