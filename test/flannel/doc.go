// SPDX-License-Identifier: Apache-2.0

// Package flannel runs real flanneld, etcd and CNI plugins, unmodified, with a shunt on every node and without, and compares.
//
// Problem: what pods of several nodes see is what Flannel, the bridge and portmap plugins and Linux make together, and keeps changing: nodes join and leave, daemons
// restart, pods come and go. No imitation of it proves that shunt changes nothing.
//
// Mechanism: twin clusters. Each is three nodes in network namespaces on a switch, which runs etcd, with flanneld on each node and pods that the plugins connect; in one of
// the clusters each node has a shunt. The same is asked of both (test/beside/agent), from pods, nodes and beyond, and answers and counters of rules have to be the same;
// then rules like kube-proxy's and policies are written, and the same accidents happen to both, while connections and calls between pods go on: where nothing is in the way
// none may fail, else they stop and come back alike. In the end shunt holds no more than before. Addresses, which Flannel draws, are called by their owners' names.
//
// Invariant: daemons, pods and namespaces are gone when a test ends; what a killed run left, the next removes.
//
// Only tests use it (make test-flannel). It needs root and flanneld, etcd, etcdctl, cnitool and the plugins (test/flannel/tools.sh), and skips where they are not.
package flannel
