# SPDX-License-Identifier: Apache-2.0
"""`python -m components.reference`: writes what follows from the model of the configuration.

The JSON Schema by which editors complete and check the stack files, and `docs/configuration.md`. What the schema
cannot say, such as that two keys exclude each other, `pulumi preview` says.
"""

import inspect
import json
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from .config import StackConfig, fields, with_derived
from .config_problems import NAMESPACE
from .reference_text import AFTER, BEFORE, STACKS

CHECKOUT: Final = Path(__file__).parent.parent
SCHEMA: Final = CHECKOUT / "components" / "config.schema.json"
PAGE: Final = CHECKOUT / "docs" / "configuration.md"
STACK_NAME: Final = f"{NAMESPACE}-<stack>"


def schema() -> str:
    """The JSON Schema of a file `Pulumi.<stack>.yaml`."""
    model = StackConfig.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = model.pop("$defs")
    properties = {f"{NAMESPACE}:{key}": model["properties"][key] for key in fields()}
    for name in ("NewCluster", "NewGrafana", "PrivateLink"):
        _forget_derived(definitions[name])
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a gpuheap stack",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "required": [f"{NAMESPACE}:agent"],
                "properties": properties,
                "propertyNames": {
                    "anyOf": [{"enum": list(properties)}, {"not": {"pattern": f"^{NAMESPACE}:"}}]
                },
            }
        },
        "$defs": definitions,
    }
    return json.dumps(document, indent=2) + "\n"


def page() -> str:
    """The text of `docs/configuration.md`."""
    parts = [BEFORE, *(_section(key, field) for key, field in fields().items()), _differences(), AFTER]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _forget_derived(definition: dict[str, Any]) -> None:
    """Names that follow from the stack's need not be written."""
    derived = {path[-1] for path in with_derived({}, STACK_NAME)[1]}
    left = [key for key in definition.pop("required", ()) if key not in derived]
    if left:
        definition["required"] = left


def _section(key: str, field: FieldInfo) -> str:
    models = list(_models(field.annotation))
    lines = [f"## `{NAMESPACE}:{key}`", "", _sentence(field.description or _about(models[0]))]
    if not models:
        return "\n".join([*lines, "", f"Default: {_default(key, field)}."])
    bracket = "[]" if get_origin(_plain(field.annotation)) is list else ""
    for model in models:
        if len(models) > 1:
            lines += [
                "",
                _sentence((model.__doc__ or model.__name__).partition("\n\n")[0].replace("\n    ", " ")),
            ]
        lines += ["", "| key | value | default |", "|---|---|---|"]
        lines += [
            f"| `{path}` | {_cell(inner.description or '')} | {_default(f'{key}.{path}', inner)} |"
            for path, inner in _leaves(model)
        ]
    return "\n".join(
        [
            *lines,
            *(["", f"Each member of the list has these keys; written `{key}{bracket}`."] if bracket else []),
        ]
    )


def _leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key below a model that holds a value, with its path."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        inner = list(_models(field.annotation))
        if not inner:
            yield path, field
            continue
        dots = "[]." if get_origin(_plain(field.annotation)) is list else "."
        for each in inner:
            yield from _leaves(each, f"{path}{dots}")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation names, its own and those of a union or a list."""
    plain = _plain(annotation)
    if isinstance(plain, type) and issubclass(plain, BaseModel):
        yield plain
    elif get_origin(plain) in (list, Union, types.UnionType):
        for member in get_args(plain):
            yield from _models(member)


def _plain(annotation: Any) -> Any:
    """An annotation without its metadata, and without `| None`."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return _plain(members[0]) if len(members) == 1 else annotation
    return annotation


def _default(path: str, field: FieldInfo) -> str:
    complete, derived = with_derived({}, STACK_NAME)
    keys = tuple(path.split("."))
    if keys in derived:
        value: Any = complete
        for key in keys:
            value = value[key]
        return f"`{value}`"
    if field.default is PydanticUndefined:
        return "must be set"
    if field.default in (None, [], {}):
        return "none"
    return f"`{field.default if isinstance(field.default, str) else json.dumps(field.default)}`"


def _about(model: type[BaseModel]) -> str:
    """The first paragraph of a model's docstring."""
    return (
        " ".join(str(inspect.getdoc(model)).partition("\n\n")[0].split()) if model.__doc__ else model.__name__
    )


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", ":")) or not text else f"{text}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _differences() -> str:
    """What the example stacks say differently, key by key."""
    flat = {
        stack: dict(_flat(yaml.safe_load((CHECKOUT / f"Pulumi.{stack}.yaml").read_text())["config"]))
        for stack in STACKS
    }
    keys = sorted({key for values in flat.values() for key in values if key.startswith(f"{NAMESPACE}:")})
    lines = [
        "## The example stacks side by side",
        "",
        f"| key | {' | '.join(STACKS)} |",
        "|---|" + "---|" * len(STACKS),
    ]
    for key in keys:
        shown = [f"`{flat[stack][key]}`" if key in flat[stack] else "" for stack in STACKS]
        if len(set(shown)) > 1:
            lines.append(f"| `{key.removeprefix(f'{NAMESPACE}:')}` | {' | '.join(map(_cell, shown))} |")
    return "\n".join(lines)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for place, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{place}]")
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, default=str)


if __name__ == "__main__":
    for file, text in ((SCHEMA, schema()), (PAGE, page())):
        file.write_text(text)
        print(f"wrote {file.relative_to(CHECKOUT)}")
