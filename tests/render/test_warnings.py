"""The list of warnings is the same on every page: each with its code, none of them as markup."""

from __future__ import annotations

import pytest

from kofn.viewer.templating import environment

WARNINGS = [("only <b>2</b> cases", "few-cases"), ("without a code", "")]


def beware(warnings, **more):
    return environment().get_template("macros.html.j2").module.beware(warnings, **more)


def test_each_has_its_code_and_is_text():
    said = beware(WARNINGS)
    assert '<li data-code="few-cases">only &lt;b&gt;2&lt;/b&gt; cases</li><li>without a code</li>' in said
    assert " hidden" not in said


def test_none_show_nothing_or_are_kept_for_a_script():
    assert not beware([]).strip()
    assert " hidden>" in beware([], keep=True)


@pytest.mark.parametrize("name", ["report", "compare", "curve", "best", "confusion"])
def test_every_page_lists_them_with_the_macro(name):
    source = environment().loader.get_source(environment(), f"{name}.html.j2")[0]
    assert source.count("{{ beware(warnings") == 1
