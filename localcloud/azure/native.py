# SPDX-License-Identifier: Apache-2.0
"""`python -m localcloud.azure.native`: the plugin that the engine starts in the place of azure-native.

Works in the local cloud that GPUHEAP_LOCALCLOUD names.
"""

import sys
from importlib.metadata import version

from localcloud.plugin import light_sdk

light_sdk.install()  # before all that imports the SDK's messages

from pulumi.runtime.proto import provider_pb2_grpc  # noqa: E402

from localcloud.azure.effects import Place  # noqa: E402
from localcloud.azure.provider import AzureNative  # noqa: E402
from localcloud.azure.store import Store  # noqa: E402
from localcloud.azure.surroundings import NotRunning, Surroundings  # noqa: E402
from localcloud.plugin.serving import serve  # noqa: E402


def main() -> int:
    try:
        surroundings = Surroundings.of_environment()
    except NotRunning as error:
        print(f"azure-native of the local cloud: {error}", file=sys.stderr)
        return 1
    place = Place(store=Store(surroundings.store), surroundings=surroundings)
    provider = AzureNative(place, version=version("pulumi_azure_native"))
    serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server))
    return 0


if __name__ == "__main__":
    sys.exit(main())
