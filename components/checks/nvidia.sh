# SPDX-License-Identifier: Apache-2.0
# Whether a node with NVIDIA GPUs can compute, asked from a pod that was given some. What it prints is what `pulumi up` shows:
# the last 2048 bytes, so that the tool's own words are cut before ours are.
# NODE: the node's name. DEVICES: how many GPUs the pod was given. MINIMUM_DRIVER: the oldest version that will do.
output=

fail() {
	printf 'node %s is not ready: %s\n' "$NODE" "$1"
	printf 'what to do: %s\n' "$2"
	[ -z "$output" ] || printf 'nvidia-smi said:\n%s\n' "$(printf '%s\n' "$output" | head -n 8 | cut -c 1-200)"
	exit 1
}

command -v nvidia-smi >/dev/null ||
	fail "there is no nvidia-smi: it has no NVIDIA driver, or its container runtime does not bring the driver into containers" \
		"let AKS install the driver (driver: Install), or look at the operator that should"
output=$(nvidia-smi --query-gpu=index,uuid,name,driver_version --format=csv,noheader 2>&1) ||
	fail "nvidia-smi ended with $?" "cordon the node and replace it; if all nodes fail alike, look at the driver's installation"
case $output in
*'No devices were found'* | '')
	fail "the driver sees no GPU" "cordon the node and replace it" ;;
*'GPU is lost'* | *'Unknown Error'* | *'[N/A]'*)
	fail "a GPU does not answer" "cordon the node and replace it" ;;
esac
found=$(printf '%s\n' "$output" | grep -c '^[0-9][0-9]*, ')
[ "$found" -ge "$DEVICES" ] ||
	fail "the pod was given $DEVICES GPUs and the driver shows $found" "restart the device plugin on the node; if that does not help, replace the node"
driver=$(printf '%s\n' "$output" | sed -n 's/^[0-9][0-9]*, .*, \([0-9][0-9.]*\)$/\1/p' | head -n 1)
[ -n "$driver" ] || fail "nvidia-smi shows no version of the driver" "look at what it said"
[ "$(printf '%s\n%s\n' "$MINIMUM_DRIVER" "$driver" | sort -V | head -n 1)" = "$MINIMUM_DRIVER" ] ||
	fail "its driver is $driver, and $MINIMUM_DRIVER is the oldest that will do" \
		"upgrade the pool's node image, or set gpuheap:devices.minimumDriver.nvidia"
printf 'node %s is ready: driver %s\n%s\n' "$NODE" "$driver" "$output"
