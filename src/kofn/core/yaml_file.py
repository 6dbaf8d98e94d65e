"""Reads YAML files with the line of every value, and validates them with strict models."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


Model = TypeVar("Model", bound=BaseModel)
_PYDANTICS = re.compile(r"function-|(?:dict|list|tuple|constrained-\w+)\[")  # parts of a place that no file has
_WORDS = {
    "missing": "missing: expected a value",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "expected a mapping"),
    **dict.fromkeys(("list_type", "tuple_type"), "expected a list"),
    "string_type": "expected text; in quotes, where YAML reads it as something else",
    **dict.fromkeys(("int_type", "int_from_float"), "expected a whole number"),
    "float_type": "expected a number",
    "bool_type": "expected true or false",
}

# anchors that repeat anchors make a billion values of a few lines ("billion laughs")
MOST_PARTS = 1_000_000


class Strict(BaseModel):
    """A part of a file. A wrong type is refused, and a key that is not known with the nearest one that is."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        check_keys(given, [one.alias or name for name, one in cls.model_fields.items()])
        return given


def check_keys(given: Any, known: Sequence[str]) -> None:
    """Refuse a key of a mapping that is not among these."""
    for key in given if isinstance(given, dict) else ():
        if key not in known:
            raise UnknownName("key", str(key), list(known))


def parse_model(
    model: type[Model], value: Any, source: str, file: Yaml | None = None, inside: Sequence[Any] = ()
) -> Model:
    """A part of a file as its model; a mistake is an InputError with its place, as of `format_validation_error`."""
    try:
        return model.model_validate(value)
    except ValidationError as problem:
        raise InputError(format_validation_error(problem, source, file, inside)) from None


def format_validation_error(
    problem: ValidationError, source: str, file: Yaml | None = None, inside: Sequence[Any] = ()
) -> str:
    """The first thing pydantic found: file, line, field, and what is wrong with it.

    `inside` is where in the file the value stands that was checked.
    """
    first = problem.errors(include_url=False, include_input=False)[0]
    at: Sequence[Any] = [part for part in first["loc"] if not _PYDANTICS.match(str(part))]
    error = first.get("ctx", {}).get("error")
    key = [error.name] if isinstance(error, UnknownName) and error.kind == "key" else []
    line = file.line([*inside, *at, *key]) if file else None
    where = f"{source}: line {line}" if line else source
    named = ".".join(" ".join(str(part).split()) for part in at)
    what = _explain(first["type"], first["msg"], first.get("ctx", {}))
    return f"{where}: {named}: {what}" if named else f"{where}: {what}"


def _explain(kind: str, message: str, context: Mapping[str, Any]) -> str:
    """What pydantic has to say, to somebody who writes YAML.

    >>> _explain("missing", "Field required", {}), _explain("greater_than", "...", {"gt": 0.0})
    ('missing: expected a value', 'expected a number above 0')
    """
    bounds = {"greater_than": "above", "greater_than_equal": "of at least", "less_than": "below"}
    bounds["less_than_equal"] = "of at most"
    if kind in bounds:
        return f"expected a number {bounds[kind]} {next(iter(context.values())):g}"
    return _WORDS.get(kind) or message.removeprefix("Value error, ").replace("Input should be", "expected")


class Yaml:
    """What a YAML file says, and where. Read by the safe loader; a key that is there twice is refused."""

    def __init__(self, path: Path, tags: Mapping[str, Callable[[str], Any]] | None = None) -> None:
        """`tags` makes values of what has a tag of its own, such as `!function`."""
        import yaml

        self.path = path
        try:
            text = path.read_text(encoding="utf-8")
            # composed first: the nodes have lines, and keys given twice are still there; constructed, the last would
            # win
            self.node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            _check_tree(self.node, path)
            self.value: Any = None if self.node is None else _constructor(tags or {}).construct_document(self.node)
        except RecursionError:
            raise InputError(f"{path}: nested too deeply") from None
        except yaml.MarkedYAMLError as problem:
            line = f": line {problem.problem_mark.line + 1}" if problem.problem_mark else ""
            raise InputError(f"{path}{line}: not YAML: {problem.problem}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as problem:
            raise InputError(f"{path}: not YAML: {' '.join(str(problem).split())}") from None
        except InputError:  # a ValueError: not to be reworded below
            raise
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as problem:  # 2026-02-31, !!bool 7
            said = " ".join(str(problem).split())
            raise InputError(f"{path}: a value that is not what it says it is: {said:.100}") from None
        except OSError as problem:
            raise InputError(f"{path}: cannot be read: {problem.strerror}") from None

    def line(self, at: Sequence[Any]) -> int | None:
        """The line of the deepest part of a path such as ("stages", 0, "prompt") that the file has."""
        node, found = self.node, None
        for part in at:
            node = _child_node(node, part)
            if node is None:
                break
            found = node.start_mark.line + 1
        return found


def _constructor(tags: Mapping[str, Callable[[str], Any]]) -> Any:
    """Makes plain values of what was read, as the safe loader does."""
    from yaml.constructor import SafeConstructor

    class Constructor(SafeConstructor):  # type: ignore[misc]  # PyYAML has no types
        """The safe one, with tags of its own."""

    for tag, make in tags.items():
        # `make=make` binds the function of this turn of the loop
        Constructor.add_constructor(tag, lambda self, node, make=make: make(self.construct_scalar(node)))
    return Constructor()


def _child_node(node: Any, part: Any) -> Any:
    if isinstance(node.value, list) and isinstance(part, int) and not _is_mapping(node):
        return node.value[part] if part < len(node.value) else None
    if _is_mapping(node):
        return next((value for key, value in node.value if key.value == part), None)
    return None


def _is_mapping(node: Any) -> bool:
    return bool(node.id == "mapping")


def _check_tree(node: Any, path: Path) -> None:
    """Refuse a key that is there twice, and anchors that make a small file large, or endless."""
    parts, left = [node], MOST_PARTS
    while parts:
        one = parts.pop()
        if (left := left - 1) < 0:
            raise InputError(f"{path}: more than {MOST_PARTS:,} values, those that anchors repeat among them")
        if one is None or not isinstance(one.value, list):
            continue
        if _is_mapping(one):
            _check_keys(one, path)
            parts += [value for _, value in one.value]
        else:
            parts += one.value


def _check_keys(mapping: Any, path: Path) -> None:
    seen: set[str] = set()
    for key, _ in mapping.value:
        if isinstance(key.value, str):
            if key.value in seen:
                raise InputError(f"{path}: line {key.start_mark.line + 1}: {key.value!r} is there twice")
            seen.add(key.value)
