"""Warnings are values: the registry is complete, and neither writing nor reading one loses anything."""

from __future__ import annotations

import ast
import json
import re

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.repository.source_tree import modules, tree_of

import kofn
from kofn.cli import kofn as command
from kofn.core.warnings import (
    OTHER,
    SEVERITIES,
    CodedWarning,
    coded_sentence,
    stored_warnings,
    warning_kinds,
    warnings_dict,
    with_code,
)
from kofn.errors import UnknownName

KINDS = warning_kinds()
NAMES = st.text(min_size=1, max_size=20)
WARNINGS = st.one_of(
    st.builds(lambda n: CodedWarning.of("few-cases", n=n), st.integers(0, 29)),
    st.builds(
        lambda names, subject: CodedWarning.of(
            "small-segments", subject, fewest=30, segments=tuple(names), marked=True
        ),
        st.lists(NAMES, min_size=1, max_size=8),
        st.just("") | NAMES,
    ),
    st.builds(
        lambda picks, by: CodedWarning.of("double-dipping", picks=picks, by=by, metric=by, fault="itself"), NAMES, NAMES
    ),
    st.builds(
        lambda metric, low: CodedWarning.of("no-threshold", metric=metric, low=low, high=low + 1),
        NAMES,
        st.floats(-9, 9),
    ),
)


def codes_in_the_source():
    """Every code that the source makes a warning with, and where."""
    for name in modules():
        for node in ast.walk(tree_of(name)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "CodedWarning.of" and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    yield first.value, name
                elif isinstance(first, ast.IfExp):
                    yield from ((one.value, name) for one in (first.body, first.orelse))
                elif isinstance(first, ast.Name) and first.id == "DOUBLE_DIPPING":
                    yield "double-dipping", name


def test_every_code_that_the_source_makes_is_in_the_registry_and_every_code_there_is_made():
    made = {code for code, _ in codes_in_the_source()}
    assert made - set(KINDS) == set()
    assert set(KINDS) - made == {OTHER}


@pytest.mark.parametrize("code", KINDS)
def test_a_code_is_stable_and_explained(code):
    kind = KINDS[code]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert kind.severity in SEVERITIES
    assert len(kind.explanation) > 60
    assert kind.explanation.endswith(".")
    assert kind.pattern() is not None  # files older than the codes get theirs by it


@given(st.lists(WARNINGS, max_size=4))
def test_what_is_written_is_read_again(warnings):
    stored = json.loads(json.dumps(warnings_dict(warnings)))
    found = stored_warnings(stored["warnings"], stored["coded_warnings"])
    assert list(found) == warnings
    assert [str(w) for w in found] == stored["warnings"]
    assert with_code(found, "few-cases") == tuple(w for w in warnings if w.code == "few-cases")


@given(st.lists(WARNINGS.filter(lambda w: not w.subject), max_size=4))
def test_sentences_of_older_files_get_the_code_that_made_them(warnings):
    sentences = [str(w) for w in warnings]
    found = stored_warnings(sentences)
    assert [w.code for w in found] == [w.code for w in warnings]
    assert [str(w) for w in found] == sentences


def test_the_subject_of_an_older_sentence_is_found():
    found = coded_sentence("verdicts: most verdicts needed a repair: the judge does not follow the rubric")
    assert (found.code, found.subject) == ("verdicts-repaired", "verdicts")
    assert str(found) == "verdicts: most verdicts needed a repair: the judge does not follow the rubric"


@pytest.mark.parametrize("file", ["", "rows.jsonl: "])
def test_a_segment_named_like_another_sentence_decides_nothing_in_older_files(file):
    """Its code comes from how the sentence begins, not from what a segment is called."""
    sentence = f"{file}segments of fewer than 30 cases: topic=a picks by `x` and is graded by y: double-dipping, z"
    assert coded_sentence(sentence).code == "small-segments"
    assert (
        coded_sentence("selected(by='x') picks by `x` and is graded by x: double-dipping, z").code == "double-dipping"
    )


def test_a_code_of_another_version_keeps_its_sentence():
    (found,) = stored_warnings(["the moon is full"], [{"code": "full-moon", "severity": "info", "values": {"n": 1}}])
    assert (found.code, str(found)) == ("full-moon", "the moon is full")
    (changed,) = stored_warnings(["few: 3"], [{"code": "few-cases", "severity": "info", "values": {"count": 3}}])
    assert (changed.code, str(changed)) == ("few-cases", "few: 3")


def test_an_unknown_code_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean few-cases"):
        CodedWarning.of("few-case")


@pytest.mark.parametrize("segment", ["double-dipping", "picks by `x` and is graded by it: double-dipping, really"])
def test_the_name_of_a_segment_never_decides(tmp_path, segment):
    rows = [{"id": str(i), "outputs": ["1", "2"], "reference": "1", "topic": segment} for i in range(4)]
    rows += [{"id": f"b{i}", "outputs": ["1", "2"], "reference": "1", "topic": "b"} for i in range(30)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert f"topic={segment}" in str(kofn.score([path], by="topic").warnings[-1])
    found = CliRunner().invoke(command, ["score", str(path), "--by", "topic", "--strict"])
    assert found.exit_code == 0, found.output
