// SPDX-License-Identifier: Apache-2.0

// Package k8s runs real Kubernetes, unmodified, with a shunt on every node and without, and compares.
//
// Problem: a cluster's network is what kube-proxy, Flannel, CNI plugins, kubelet and Linux make together, out of some thousand rules that are written anew whenever a pod comes or
// goes. No imitation of it proves that shunt changes nothing, nor that anything of it is fast.
//
// Mechanism: twin clusters in network namespaces: a switch that runs etcd, API server, controllers and scheduler, and nodes with flanneld and kube-proxy, by iptables and by nftables;
// in one of the clusters each node has a shunt. Pods are namespaces that the plugins connect, and endpoints of services by their addresses, so that many nodes need no kubelet. The same
// is asked of both clusters and the same happens to both under traffic. One more cluster has a real kubelet and containerd on its first node, with a Deployment that is scaled under
// load; there shunt comes as a cluster would get it, as the DaemonSet of deploy/kubernetes.
//
// Invariant: daemons, containers, mounts and namespaces are gone when a test ends; what a killed run left, the next removes. Nothing runs in the machine's own network.
//
// Only tests use it (make test-k8s). It needs root and what test/k8s/tools.sh and test/flannel/tools.sh build, and skips where they are not.
package k8s
