package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// runNetworkPolicies is kube-router with its firewall alone: it keeps iptables and ipset in line with the NetworkPolicy
// objects, for the pods of one node. Upstream's command would also start what routes, balances and reports health.
func runNetworkPolicies() error {
	config := options.NewKubeRouterConfig()
	config.EnableIPv4 = true
	flags := pflag.NewFlagSet("network-policies", pflag.ExitOnError)
	flags.StringVar(&config.Kubeconfig, "kubeconfig", "", "how to reach the API server")
	flags.StringVar(&config.HostnameOverride, "hostname-override", "", "name of the Node whose pods are guarded")
	flags.StringSliceVar(&config.ClusterIPCIDRs, "service-cluster-ip-range", config.ClusterIPCIDRs,
		"addresses of Services")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	access, err := clientcmd.BuildConfigFromFlags("", config.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sync.Mutex{}, tables, sets)
	if err != nil {
		return err
	}
	handlers := map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods:       controller.PodEventHandler,
		policies:   controller.NetworkPolicyEventHandler,
		namespaces: controller.NamespaceEventHandler,
	}
	for informer, handler := range handlers {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	var never chan struct{}
	factory.Start(never)
	for kind, synced := range factory.WaitForCacheSync(never) {
		if !synced {
			return fmt.Errorf("cannot list %v", kind)
		}
	}
	heartbeats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range heartbeats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(heartbeats, never, &running)
	return nil
}
