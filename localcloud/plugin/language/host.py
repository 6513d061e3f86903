# SPDX-License-Identifier: Apache-2.0
"""The calls that the engine makes to a language host (`pulumirpc.LanguageRuntime`)."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import language_pb2 as pb
from pulumi.runtime.proto import language_pb2_grpc, plugin_pb2

from localcloud.plugin.language.interpreter import (
    CannotRun,
    Interpreter,
    installed,
    interpreter_of,
    required_plugins,
)
from localcloud.plugin.language.processes import Processes, Written

ERROR_SHOWN: Final = 32
"""Exit code of `pulumi-language-python-exec` after it has shown the program's error to the user."""


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Runs Python for the engine at address `engine`; `executor` is the SDK's script that runs one program."""

    def __init__(self, *, engine: str, executor: Path, version: str, processes: Processes) -> None:
        self._engine, self._executor, self._version, self._processes = engine, executor, version, processes

    def GetPluginInfo(self, request: Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=self._version)

    def About(self, request: pb.AboutRequest, context: grpc.ServicerContext) -> pb.AboutResponse:
        interpreter = _interpreter(request.info, context)
        return pb.AboutResponse(executable=interpreter.python, version=interpreter.version())

    def RuntimeOptionsPrompts(
        self, request: pb.RuntimeOptionsRequest, context: grpc.ServicerContext
    ) -> pb.RuntimeOptionsResponse:
        """`pulumi new` has nothing to ask."""
        return pb.RuntimeOptionsResponse()

    def Template(self, request: pb.TemplateRequest, context: grpc.ServicerContext) -> pb.TemplateResponse:
        """What `pulumi new` copied needs no rewriting."""
        return pb.TemplateResponse()

    def GetRequiredPackages(
        self, request: pb.GetRequiredPackagesRequest, context: grpc.ServicerContext
    ) -> pb.GetRequiredPackagesResponse:
        plugins = required_plugins(_interpreter(request.info, context).search_path())
        packages = [
            plugin_pb2.PackageDependency(kind="resource", name=name, version=version, server=server)
            for name, version, server in plugins
        ]
        return pb.GetRequiredPackagesResponse(packages=packages)

    def GetProgramDependencies(
        self, request: pb.GetProgramDependenciesRequest, context: grpc.ServicerContext
    ) -> pb.GetProgramDependenciesResponse:
        path = _interpreter(request.info, context).search_path()
        versions = installed(path, transitive=request.transitiveDependencies)
        dependencies = [
            pb.DependencyInfo(name=name, version=version) for name, version in sorted(versions.items())
        ]
        return pb.GetProgramDependenciesResponse(dependencies=dependencies)

    def InstallDependencies(
        self, request: pb.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.InstallDependenciesResponse]:
        """`pulumi install`: the virtual environment, and requirements.txt into it."""
        interpreter = _interpreter(request.info, context, must_exist=False)
        folder = Path(request.info.program_directory)
        steps = []
        if not interpreter.exists:
            steps.append([sys.executable, "-m", "venv", str(interpreter.virtualenv)])
        if (folder / "requirements.txt").exists():
            steps.append([interpreter.python, "-m", "pip", "install", "-r", "requirements.txt"])
        for step in steps:
            environment = interpreter.environment({})
            for part in self._processes.stream(step, context, environment=environment, folder=folder):
                match part:
                    case Written(data, to_stderr=True):
                        yield pb.InstallDependenciesResponse(stderr=data)
                    case Written(data):
                        yield pb.InstallDependenciesResponse(stdout=data)
                    case code if code:
                        _abort(context, f"{' '.join(step)} ended with exit code {code}")

    def Run(self, request: pb.RunRequest, context: grpc.ServicerContext) -> pb.RunResponse:
        """Run a program to its end. Its outcome reaches the engine through the monitor; here only how it ended."""
        interpreter = _interpreter(request.info, context)
        settings = {
            "monitor": request.monitor_address,
            "engine": self._engine,
            "organization": request.organization,
            "project": request.project,
            "root_directory": request.info.root_directory,
            "stack": request.stack,
            "pwd": request.pwd,
            "parallel": request.parallel,
            "dry_run": "true" if request.dryRun else "false",
        }
        config = {
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        flags = [f"--{name}={value}" for name, value in settings.items() if value not in ("", None)]
        command = [
            interpreter.python,
            "-u",
            str(self._executor),
            *flags,
            _program(request.info),
            *request.args,
        ]
        code = self._processes.run(command, context, environment=interpreter.environment(config))
        if code in (0, ERROR_SHOWN):
            return pb.RunResponse(bail=code == ERROR_SHOWN)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return pb.RunResponse(error=f"the program {how}")

    def RunPlugin(
        self, request: pb.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.RunPluginResponse]:
        """Run a provider or a policy pack that is written in Python, as long as the engine wants it."""
        interpreter = _interpreter(request.info, context)
        program, arguments = _program(request.info), list(request.args)
        if request.kind == "analyzer":  # the SDK's runner takes the engine's address before the program
            command = ["-m", "pulumi.policy", arguments[0], program, *arguments[1:]]
        else:
            command = [program, *arguments]
        environment = interpreter.environment(dict(entry.split("=", 1) for entry in request.env))
        output = self._processes.stream(
            [interpreter.python, "-u", *command], context, environment=environment, folder=Path(request.pwd)
        )
        for part in output:
            match part:
                case Written(data, to_stderr=True):
                    yield pb.RunPluginResponse(stderr=data)
                case Written(data):
                    yield pb.RunPluginResponse(stdout=data)
                case code:
                    yield pb.RunPluginResponse(exitcode=code)

    def Cancel(self, request: Empty, context: grpc.ServicerContext) -> Empty:
        self._processes.end()
        return Empty()


def _interpreter(
    info: pb.ProgramInfo, context: grpc.ServicerContext, *, must_exist: bool = True
) -> Interpreter:
    options: dict[str, Any] = MessageToDict(info.options)
    try:
        interpreter = interpreter_of(Path(info.root_directory), options)
    except CannotRun as error:
        _abort(context, str(error))
    if must_exist and not interpreter.exists:
        _abort(context, f"there is no {interpreter.python}, which the project's option `virtualenv` asks for")
    return interpreter


def _program(info: pb.ProgramInfo) -> str:
    """The file or folder to run; the entry point is often `.`."""
    return os.path.normpath(Path(info.program_directory) / info.entry_point)


def _abort(context: grpc.ServicerContext, reason: str) -> NoReturn:
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)
    raise AssertionError("abort raises")
