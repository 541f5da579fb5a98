// SPDX-License-Identifier: Apache-2.0

package k8s

import "fmt"

type object = map[string]any

// service is one without a selector, whose endpoints slice gives.
type service struct {
	name     string
	ip       string // in svcNet
	nodePort int    // 0: none
	spec     object // what else it has
	pods     []string
}

// services are what the clusters have: one with two endpoints on two nodes, one with one, and those whose rules differ.
func services() []service {
	return []service{
		{"web", "10.43.0.80", 30080, nil, []string{"pod1b", "pod2a"}},
		{"one", "10.43.0.83", 30083, nil, []string{"pod2a"}},
		{"near", "10.43.0.84", 30084, nil, []string{"pod1b"}},
		{"local", "10.43.0.85", 30085, object{"externalTrafficPolicy": "Local"}, []string{"pod2a"}},
		{"sticky", "10.43.0.86", 0, object{"sessionAffinity": "ClientIP"}, []string{"pod1b", "pod2a"}},
		{"empty", "10.43.0.87", 30087, nil, nil},
		{"outer", "10.43.0.88", 0, object{"externalIPs": []string{"198.51.100.88"}}, []string{"pod2a"}},
	}
}

func (s service) object() object {
	ports := func() []object {
		out := []object{{"name": "tcp", "protocol": "TCP", "port": 80, "targetPort": 80}, {"name": "udp", "protocol": "UDP", "port": 80, "targetPort": 80}}
		if s.nodePort != 0 {
			out[0]["nodePort"], out[1]["nodePort"] = s.nodePort, s.nodePort
		}
		return out
	}
	spec := object{"clusterIP": s.ip, "type": map[bool]string{true: "NodePort", false: "ClusterIP"}[s.nodePort != 0], "ports": ports()}
	for key, value := range s.spec {
		spec[key] = value
	}
	return object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": s.name, "namespace": "default"}, "spec": spec}
}

// slice gives the service's endpoints.
func (c *cluster) slice(s service) object {
	endpoints := []object{}
	for _, name := range s.pods {
		p := c.pods[name]
		endpoints = append(endpoints, object{"addresses": []string{p.addr.String()}, "nodeName": p.node.String(), "conditions": object{"ready": true}})
	}
	return object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
		"metadata": object{"name": s.name + "-1", "namespace": "default", "labels": object{"kubernetes.io/service-name": s.name}},
		"ports":    []object{{"name": "tcp", "port": 80, "protocol": "TCP"}, {"name": "udp", "port": 80, "protocol": "UDP"}},
	}
}

// have makes services exist, or their endpoints others.
func (c *cluster) have(services ...service) {
	c.Helper()
	var all []object
	for _, s := range services {
		all = append(all, s.object(), c.slice(s))
	}
	c.apply(all...)
}

// reachable waits until a service is answered from somewhere by all of its pods.
func (c *cluster) reachable(from string, s service) {
	c.Helper()
	ns, owners := c.place(from), c.owners()
	want := fmt.Sprint(len(s.pods))
	c.await(fmt.Sprintf("%s is reached from %s", s.name, from), "kube-proxy-node1", func() bool {
		return count(ask(c, ns, owners, "where "+s.ip+":80 16"), "pod") == want
	})
}
