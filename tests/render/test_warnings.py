"""The list of warnings is the same on every page: each with its code, none of them as markup."""

from __future__ import annotations

import pytest

from kofn.viewer.templating import environment

WARNINGS = [("only <b>2</b> cases", "few-cases"), ("without a code", "")]


def warning_list(warnings, **more):
    return environment().get_template("macros.html.j2").module.warning_list(warnings, **more)


def test_each_has_its_code_and_is_text():
    said = warning_list(WARNINGS)
    assert '<li data-code="few-cases">only &lt;b&gt;2&lt;/b&gt; cases</li><li>without a code</li>' in said
    assert " hidden" not in said
    assert ">Warnings</h2>" in said


def test_what_stands_in_backticks_is_code_and_still_text():
    said = warning_list([("give `--by <b>` or `", "x")])
    assert "give <code>--by &lt;b&gt;</code> or `</li>" in said


def test_none_show_nothing_or_are_kept_for_a_script():
    assert not warning_list([]).strip()
    assert " hidden>" in warning_list([], keep=True)


@pytest.mark.parametrize("name", ["report", "compare", "curve", "best", "confusion"])
def test_every_page_lists_them_with_the_macro(name):
    source = environment().loader.get_source(environment(), f"{name}.html.j2")[0]
    assert source.count("{{ warning_list(warnings") == 1
