"""Reads selectors from YAML files, or by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from kofn.analysis.selectors import Selector
from kofn.core.yaml_file import Strict, Yaml, parse_model
from kofn.errors import InputError

ENDINGS = (".yaml", ".yml")


class SelectorSpec(Strict):
    """A whole selector file. `by` is what picks; the rest says which way, and who made the scores."""

    name: str | None = Field(default=None, min_length=1)
    by: str = Field(min_length=1)
    prefer: Literal["high", "low"] = "high"
    version: str = "1"
    model: str | None = None
    prompt: str | None = None

    @field_validator("version", mode="before")
    @classmethod
    def _as_text(cls, given: Any) -> Any:
        # `version: 2` is a number to YAML
        return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


def load_selector(text: str) -> Selector:
    """The selector of a file that ends in .yaml or .yml; any other text is what picks, and its own name.

    A file needs `by`; its name is the file's where it gives none. Whether the candidates have such a column is found
    out when they are there.

    >>> load_selector("vote")
    Selector(name='vote', by='vote', prefer='high', version='1', model=None, prompt=None)
    >>> load_selector("judge.yaml")
    Traceback (most recent call last):
    kofn.errors.InputError: judge.yaml: no such file: give a selector's YAML file, or a name such as vote
    """
    if not text.strip():
        raise InputError("selector: expected a YAML file or a name, not nothing")
    return _read(Path(text)) if text.lower().endswith(ENDINGS) else Selector(name=text, by=text)


def _read(path: Path) -> Selector:
    if not path.is_file():
        raise InputError(f"{path}: no such file: give a selector's YAML file, or a name such as vote")
    file = Yaml(path)
    if not isinstance(file.value, dict):
        raise InputError(f"{path}: expected a mapping with `by`, such as by: reward")
    spec = parse_model(SelectorSpec, file.value, str(path), file)
    return Selector(**{**spec.model_dump(), "name": spec.name or path.stem})
