# SPDX-License-Identifier: Apache-2.0
"""`python -m localcloud.plugin NAME [FLAG]... ENGINE`: what the launchers in a Pulumi home run."""

import argparse
from pathlib import Path

from localcloud.plugin import light_sdk

light_sdk.install()  # before all that imports the SDK's messages

from localcloud.plugin.serving import serve  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m localcloud.plugin")
    parser.add_argument("plugin", choices=["language", "random", "docker-build"])
    parser.add_argument("--version", required=True, help="the version that the engine was told")
    parser.add_argument("--executor", type=Path, help="the SDK's pulumi-language-python-exec")
    arguments, engine = (
        parser.parse_known_args()
    )  # what is left: logging flags, and the engine's address at the end
    if arguments.plugin == "language":
        _language_host(engine[-1], arguments.executor, arguments.version)
    elif arguments.plugin == "random":
        from localcloud.plugin.random_values import random_provider

        random_provider(arguments.version).serve()
    else:
        from localcloud.plugin.docker_build import docker_build_provider

        docker_build_provider(arguments.version).serve()


def _language_host(engine: str, executor: Path, version: str) -> None:
    from pulumi.runtime.proto import language_pb2_grpc

    from localcloud.plugin.language.host import LanguageHost
    from localcloud.plugin.language.processes import Processes

    processes = Processes()
    host = LanguageHost(engine=engine, executor=executor, version=version, processes=processes)
    serve(lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server), processes.end)


if __name__ == "__main__":
    main()
