package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const lookAgain = 100 * time.Millisecond

// described is what the file of devices says about one resource.
type described struct {
	// Devices is the health, "Healthy" or "Unhealthy", by device id.
	Devices map[string]string `json:"devices"`
	// Mounts are what a container gets that is given a device: paths in it, and on the node.
	Mounts map[string]string `json:"mounts"`
	// Variable is the environment variable that names the container's devices.
	Variable string `json:"variable"`
}

// runDevicePlugin plays the device plugin of a GPU vendor: it offers the devices that a file describes, and follows the
// file. A node without a driver has no such file, and its plugin waits.
func runDevicePlugin() error {
	flags := pflag.NewFlagSet("device-plugin", pflag.ExitOnError)
	vendor := flags.String("vendor", "nvidia.com", "resources to offer: those whose name begins with it")
	file := flags.String("devices", plugin.DevicePluginPath+"gpus.json", "what there is, by resource")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	offered := map[string]bool{}
	for ; ; time.Sleep(lookAgain) {
		resources, err := read(*file)
		if err != nil {
			return err
		}
		for name := range resources {
			if !strings.HasPrefix(name, *vendor+"/") || offered[name] {
				continue
			}
			if err := offer(name, *file); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			offered[name] = true
			fmt.Println("registered", name)
		}
	}
}

func read(file string) (map[string]described, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var resources map[string]described
	if err := json.Unmarshal(text, &resources); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return resources, nil
}

// offer serves one resource on a socket of its own and tells the kubelet.
func offer(resource, file string) error {
	socket := strings.ReplaceAll(resource, "/", "_") + ".sock"
	path := filepath.Join(plugin.DevicePluginPath, socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	plugin.RegisterDevicePluginServer(server, &devicePlugin{resource: resource, file: file})
	go server.Serve(listener)
	kubelet, err := grpc.NewClient("unix://"+plugin.KubeletSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	request := &plugin.RegisterRequest{Version: plugin.Version, Endpoint: socket, ResourceName: resource}
	_, err = plugin.NewRegistrationClient(kubelet).Register(context.Background(), request)
	return err
}

type devicePlugin struct {
	plugin.UnimplementedDevicePluginServer
	resource, file string
}

func (served *devicePlugin) GetDevicePluginOptions(
	context.Context, *plugin.Empty,
) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

func (served *devicePlugin) ListAndWatch(
	_ *plugin.Empty, stream grpc.ServerStreamingServer[plugin.ListAndWatchResponse],
) error {
	var sent map[string]string
	for first := true; stream.Context().Err() == nil; time.Sleep(lookAgain) {
		resources, err := read(served.file)
		if err != nil {
			return err
		}
		found := resources[served.resource].Devices
		if !first && maps.Equal(found, sent) {
			continue
		}
		first, sent = false, found
		list := &plugin.ListAndWatchResponse{}
		for _, id := range slices.Sorted(maps.Keys(found)) {
			list.Devices = append(list.Devices, &plugin.Device{ID: id, Health: found[id]})
		}
		if err := stream.Send(list); err != nil {
			return err
		}
	}
	return nil
}

func (served *devicePlugin) Allocate(
	_ context.Context, request *plugin.AllocateRequest,
) (*plugin.AllocateResponse, error) {
	resources, err := read(served.file)
	if err != nil {
		return nil, err
	}
	has := resources[served.resource]
	response := &plugin.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		given := &plugin.ContainerAllocateResponse{
			Envs: map[string]string{has.Variable: strings.Join(container.DevicesIds, ",")},
		}
		for inside, onNode := range has.Mounts {
			mount := &plugin.Mount{ContainerPath: inside, HostPath: onNode, ReadOnly: true}
			given.Mounts = append(given.Mounts, mount)
		}
		response.ContainerResponses = append(response.ContainerResponses, given)
	}
	return response, nil
}
