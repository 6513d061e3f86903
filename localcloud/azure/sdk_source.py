# SPDX-License-Identifier: Apache-2.0
"""Reads the declarations of the installed `pulumi_azure_native`, in its source.

Not by importing it: that would take seconds and hundreds of megabytes in a process that needs a dozen of its 12,000
classes. The files are generated, so their form is regular; a test compares what is read with what Python makes of it.
"""

import ast
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

PACKAGE: Final = "pulumi_azure_native"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A property as a class declares it: its annotation, and whether it may be left out."""

    annotation: ast.expr
    required: bool


@cache
def package_folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{PACKAGE} is not installed: run `make setup`, and use .venv/bin/python")
    return Path(spec.submodule_search_locations[0])


class SourceFile:
    """One file of the SDK, and the classes in it by name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def properties(self, name: str) -> dict[str, Declared]:
        """The properties of a class by their names on the wire: the arguments of an input, the getters of the rest."""
        body = self._class(name).body
        functions = [node for node in body if isinstance(node, ast.FunctionDef)]
        getters = {function.name: wire for function in functions if (wire := _wire_name(function))}
        if name.endswith("Args"):
            init = next(function for function in functions if function.name == "__init__")
            return {getters[key]: declared for key, declared in _arguments(init).items()}
        return {
            getters[function.name]: Declared(
                annotation=function.returns, required="Optional[" not in ast.unparse(function.returns)
            )
            for function in functions
            if function.name in getters and function.returns is not None
        }

    def inputs_of(self, resource: str) -> dict[str, Declared]:
        """The inputs of a resource. Their class has another name where a type of the module has the usual one."""
        usual = f"{resource}Args"
        return self.properties(usual if usual in self else f"{resource}InitArgs")

    @property
    def api_version(self) -> str:
        """The version of Azure's API that the file's resource is generated from."""
        match = re.search(r"Uses Azure REST API version (\d[\w-]+)\.", self._text)
        return match[1] if match else ""

    def enum_values(self, name: str) -> tuple[str, ...]:
        values = [node.value for node in self._class(name).body if isinstance(node, ast.Assign)]
        return tuple(str(value.value) for value in values if isinstance(value, ast.Constant))

    def _class(self, name: str) -> ast.ClassDef:
        start, end = self._places[name]
        node = ast.parse(self._text[start:end]).body[0]
        assert isinstance(node, ast.ClassDef)
        return node

    @cached_property
    def _text(self) -> str:
        return self.path.read_text() if self.path.exists() else ""

    @cached_property
    def _places(self) -> Mapping[str, tuple[int, int]]:
        """Where the text of each class starts and ends."""
        starts = [
            (match[1], match.start()) for match in re.finditer(r"^class (\w+)", self._text, re.MULTILINE)
        ]
        ends = [
            match.start() for match in re.finditer(r"^(?:@|class |def |_\w+ ?=)", self._text, re.MULTILINE)
        ]
        ends.append(len(self._text))
        places, following = {}, iter(ends)
        end = next(following)
        for name, start in starts:
            while end <= start:
                end = next(following)
            places[name] = (start, end)
        return places


class Module:
    """One module of the SDK, `containerservice` for example."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._folder = package_folder() / name
        self.inputs = SourceFile(self._folder / "_inputs.py")
        self.enums = SourceFile(self._folder / "_enums.py")
        self.outputs = SourceFile(self._folder / "outputs.py")

    @property
    def exists(self) -> bool:
        return self._folder.is_dir()

    def resource_file(self, name: str) -> SourceFile | None:
        """The file that declares the resource class `name`; None if there is none."""
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
        usual = SourceFile(self._folder / f"{snake}.py")
        if name in usual:
            return usual
        declaration = f"class {name}(pulumi.CustomResource)"
        for path in sorted(self._folder.glob("*.py")):
            if declaration in path.read_text():
                return SourceFile(path)
        return None


@cache
def module(name: str) -> Module:
    return Module(name)


def _arguments(init: ast.FunctionDef) -> dict[str, Declared]:
    """The arguments of an input class. One without a default must be given."""
    pairs = zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True)
    return {
        argument.arg: Declared(annotation=argument.annotation, required=default is None)
        for argument, default in pairs
        if argument.annotation is not None
    }


def _wire_name(function: ast.FunctionDef) -> str | None:
    """The name on the wire of a property's getter: that of the decorator, or its own. None for other functions."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pulumi.getter":
            name = next((keyword.value for keyword in decorator.keywords if keyword.arg == "name"), None)
            return str(name.value) if isinstance(name, ast.Constant) else None
        if ast.unparse(decorator) == "pulumi.getter":
            return function.name
    return None
