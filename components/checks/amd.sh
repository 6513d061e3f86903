# SPDX-License-Identifier: Apache-2.0
# Whether a node with AMD GPUs can compute, asked from a pod that was given some. What it prints is what `pulumi up` shows:
# the last 2048 bytes, so that the tool's own words are cut before ours are.
# NODE: the node's name. DEVICES: how many GPUs the pod was given. MINIMUM_DRIVER: the oldest version that will do.
output=

fail() {
	printf 'node %s is not ready: %s\n' "$NODE" "$1"
	printf 'what to do: %s\n' "$2"
	[ -z "$output" ] || printf 'amd-smi said:\n%s\n' "$(printf '%s\n' "$output" | head -n 8 | cut -c 1-200)"
	exit 1
}

command -v amd-smi >/dev/null ||
	fail "there is no amd-smi in the image of the check" "set gpuheap:devices.checkImage.amd to an image that has it"
output=$(amd-smi static --driver 2>&1) ||
	fail "amd-smi ended with $?" "look at the driver's installation; if one node alone fails, cordon and replace it"
found=$(printf '%s\n' "$output" | grep -c '^ *GPU: *[0-9]')
[ "$found" -gt 0 ] || fail "the driver sees no GPU" "cordon the node and replace it"
[ "$found" -ge "$DEVICES" ] ||
	fail "the pod was given $DEVICES GPUs and the driver shows $found" "restart the device plugin on the node; if that does not help, replace the node"
# VERSION of older tools is DRIVER_VERSION; OS_KERNEL_VERSION is another thing.
driver=$(printf '%s\n' "$output" | sed -n 's/^ *\(DRIVER_\)\{0,1\}VERSION: *//p' | head -n 1)
case $driver in
[0-9]*) ;;
*)
	fail "its driver has no version of its own (${driver:-none}): it is the kernel's, or not loaded" \
		"install AMD's amdgpu driver, with the AMD GPU operator" ;;
esac
[ "$(printf '%s\n%s\n' "$MINIMUM_DRIVER" "$driver" | sort -V | head -n 1)" = "$MINIMUM_DRIVER" ] ||
	fail "its driver is $driver, and $MINIMUM_DRIVER is the oldest that will do" \
		"upgrade the driver, or set gpuheap:devices.minimumDriver.amd"
printf 'node %s is ready: driver %s\n%s\n' "$NODE" "$driver" "$output"
