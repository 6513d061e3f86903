#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# layout.sh FOLDER ADDRESS: make the mount and network namespaces, which are new, look like a node's, say so, and keep them
# until standard input ends. All mounts and links end with the last process in them.
set -eu
folder=$1
address=$2

mount -t tmpfs -o mode=755 node-run /run
mkdir -p /run/lock /run/netns /run/node/upper /run/node/work /run/node/sysctl
# The kubelet's folder has a fixed name, and so have those of pods' logs: they are laid over /var, which stays as it is.
mount -t overlay -o lowerdir=/var,upperdir=/run/node/upper,workdir=/run/node/work node-var /var
for name in kubelet containerd cni; do
	mkdir -p "$folder/$name" "/var/lib/$name"
	# Folders of the disk: overlayfs, which containers are made of, cannot lie on overlayfs.
	mount --bind "$folder/$name" "/var/lib/$name"
done
mkdir -p /var/log/pods /var/log/containers

# The kubelet sets these for the whole machine unless they have its values: it is shown files that do.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
	kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	path=${setting%=*}
	shown=/run/node/sysctl/$(echo "$path" | tr / .)
	echo "${setting#*=}" >"$shown"
	if [ -e "/proc/sys/$path" ]; then mount --bind "$shown" "/proc/sys/$path"; fi
done
mount --make-rshared /

ip link set lo up
ip link add node0 type bridge
ip addr add "$address/24" dev node0
ip link set node0 up
ip route add default dev node0
echo 1 >/proc/sys/net/ipv4/ip_forward
# Bridged packets between two pods must pass the rules, too.
if [ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]; then echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables; fi

echo ready
exec cat
