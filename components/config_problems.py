# SPDX-License-Identifier: Apache-2.0
"""Says what is wrong with a stack's configuration, in the words in which the user writes it.

Owns the texts. What is allowed is decided by the models in `settings/`, whose field descriptions and examples
appear here.
"""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import pulumi
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

NAMESPACE: Final = "gpuheap"

Path = tuple[str | int, ...]
"""Keys, and places in lists: `("gpuPools", 0, "vmSize")`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One value that cannot work: `path` is the key as the user writes it: `gpuheap:gpuPools[0].vmSize`."""

    path: str
    reason: str
    given: str | None = None
    allowed: str | None = None
    fix: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.reason}"]
        for label, text in (("given", self.given), ("allowed", self.allowed), ("fix", self.fix)):
            if text is not None:
                lines.append(f"    {label}: {text}")
        return "\n".join(lines)


class ConfigError(pulumi.RunError):
    """The configuration is refused; nothing has been created. The text lists every problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = "1 value" if len(problems) == 1 else f"{len(problems)} values"
        body = "\n".join(f"  {problem}".replace("\n", "\n  ") for problem in problems)
        super().__init__(f"the configuration of this stack has {count} that cannot work:\n{body}")


def problems_of(error: ValidationError, model: type[BaseModel], derived: Mapping[Path, str]) -> list[Problem]:
    """The problems that pydantic found in `model`. `derived` names the values that the user did not write,
    with their origin.
    """
    return [_problem(detail, model, derived) for detail in error.errors(include_url=False)]


def problem_of(refusal: PydanticCustomError) -> Problem:
    """The problem that a rule between parts of the configuration found: the refusal says where it is."""
    context: Any = refusal.context
    at = tuple(context["at"])
    examples = context.get("examples")
    return Problem(
        path=_written(at),
        reason=refusal.message(),
        given=context.get("given"),
        allowed=context.get("allowed"),
        fix=set_command(at, examples[0]) if examples else remove_command(at),
    )


def unknown_key(path: Path, known: Iterable[str], given: str | None = None) -> Problem:
    """A key that no model has, with the nearest one that it has."""
    names = sorted(known)
    near = difflib.get_close_matches(str(path[-1]), names, n=1, cutoff=0.5)
    hint = f"; did you mean {_written((*path[:-1], near[0]))}?" if near else ""
    return Problem(
        path=_written(path),
        reason=f"there is no such key{hint}",
        given=given,
        allowed=", ".join(names),
        fix=remove_command(path),
    )


def remove_command(path: Path) -> str:
    return f"pulumi config rm --path '{_written(path)}'"


def set_command(path: Path, value: object) -> str:
    """The command that sets one value. Of a group or a list, which no single command can set, it sets the
    first.
    """
    while isinstance(value, Mapping | list):
        key, value = next(iter(value.items())) if isinstance(value, Mapping) else (0, value[0])
        path = (*path, key)
    shown = value if isinstance(value, str) else json.dumps(value)
    return f"pulumi config set --path '{_written(path)}' {shown}"


def _problem(detail: Any, model: type[BaseModel], derived: Mapping[Path, str]) -> Problem:
    # A discriminated union adds the tag of the chosen variant to the path; users do not write it.
    path: Path = tuple(part for part in detail["loc"] if not str(part).startswith("<"))
    owner, field = _look_up(model, path)
    if detail["type"] == "extra_forbidden":
        return _extra_key(path, owner, _shown(detail["input"]))
    context = detail.get("ctx") or {}
    given = None if detail["type"] == "missing" else _shown(detail["input"])
    if path in derived and given is not None:
        given += f" ({derived[path]})"
    examples = context.get("examples") or (field.examples if field else None) or []
    at = tuple(context.get("at", (*path, *context.get("under", ()))))
    proposed = remove_command(at) if context.get("remove") else None
    if proposed is None and examples:
        proposed = set_command(at, examples[0])
    return Problem(
        path=_written(at),
        reason=_reason(detail),
        given=context.get("given", given),
        allowed=context.get("allowed", field.description if field else None),
        fix=context.get("fix") or proposed,
    )


def _extra_key(path: Path, owner: Any, given: str) -> Problem:
    """A key that no variant has, or that only a variant has which the other keys rule out."""
    variants = [_fields(variant) for variant in _variants(owner)]
    if not any(path[-1] in fields for fields in variants):
        return unknown_key(path, {name for fields in variants for name in fields}, given)
    ways = [sorted(fields) for fields in variants]
    return Problem(
        path=_written(path),
        reason="this key does not go with the others here",
        given=given,
        allowed=", or ".join(" and ".join(way) for way in ways),
        fix=remove_command(path),
    )


def _look_up(model: type[BaseModel], path: Path) -> tuple[Any, FieldInfo | None]:
    """The annotation that holds the last key of `path`, and that key's field if there is one."""
    owner: Any = model
    field: FieldInfo | None = None
    for index, part in enumerate(path):
        if isinstance(part, int):  # a place in a list, whose annotation names the model of its members
            continue
        field = next((f[part] for f in map(_fields, _variants(owner)) if part in f), None)
        if field is None:
            return owner, None
        if index + 1 < len(path):
            owner = field.annotation
    return owner, field


def _variants(annotation: Any) -> list[type[BaseModel]]:
    """All models that an annotation names: itself, or the members of a union."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for member in get_args(annotation) for model in _variants(member)]


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _written(path: Path) -> str:
    first, *rest = path
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
    return f"{first if ':' in str(first) else f'{NAMESPACE}:{first}'}{text}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, default=str)


def _reason(detail: Any) -> str:
    """pydantic's message, unless it speaks of patterns or Python types."""
    match detail["type"]:
        case "missing":
            return "it must be set"
        case "string_pattern_mismatch":
            return f"this is not of the allowed form ({len(detail['input'])} characters)"
        case "model_type" | "dict_type" | "model_attributes_type":
            return "this is a group of keys, not a single value"
        case "refused":
            return str(detail["msg"])
    message: str = detail["msg"]
    return message[:1].lower() + message[1:]
