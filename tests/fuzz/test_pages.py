"""Whatever a text holds, no page and no terminal obeys it: outputs, ids, tags, references, reasoning and file names."""

from __future__ import annotations

import json
import os
import unicodedata
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.viewer.runs import small_rows, write
from tests.viewer.serving import ask, served

from kofn.cli import kofn as command
from kofn.render.report_html import report_page
from kofn.runs.record import load_run

if TYPE_CHECKING:
    from pathlib import Path

# an element and attributes that no page of ours has, behind everything that might end what a text stands in
ELEMENT = "<kofnx kofny=1 onkofnz='go()'>"
ENDS = ["</script>", "</style>", "</title>", "</textarea>", "</pre>", "</template>", "</td></tr></table>", "-->", "]]>"]
ATTRIBUTES = ['" kofny="1', "' kofny='1", "\" onkofnz='1", "`kofny=1", " kofny=1 ", "javascript:kofnz()//"]
OTHERS = [
    "\u2028\u2029",
    "\x00\x1b[31m\x07\x9b",
    "\u202e\u2066",
    "{{7*7}}{% raw %}",
    "&lt;kofnx&gt;",
    "\\u003c/script>",
    "\r\n",
]
EVIL = ELEMENT.join(ENDS) + ELEMENT + "".join(ATTRIBUTES) + "".join(OTHERS) + ELEMENT
OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")


class Seen(HTMLParser):
    """What a browser would make of a page: the elements, and every attribute."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "action", "formaction")]

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() and str(self.get_starttag_text()).lower().startswith("<script"):
            self.scripts.append(data)


def check(text: str) -> None:
    """Nothing on this page was made by the text."""
    seen = Seen(text)
    assert "kofnx" not in seen.elements
    assert not {name for name in seen.attributes if "kofn" in name and not name.startswith("data-")}
    assert not {name for name in seen.attributes if name.startswith("on")}, "no page of ours has a handler in it"
    assert not [
        one for one in seen.addresses if one.strip().lower().startswith(("javascript:", "data:text", "vbscript:"))
    ]


def unobeyed(text: str) -> None:
    """No character that moves a cursor, changes a colour or a direction, or breaks a line."""
    found = {c for c in text if unicodedata.category(c) in OBEYED and c != "\n"}
    assert not found, sorted(map(hex, map(ord, found)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, hostile in every field, under names as hostile as a disk allows."""
    folder = tmp_path_factory.mktemp("evil")
    for name in ("a<kofnx kofny=1>'\"", "b"):
        write(folder / name, small_rows(6, evil=EVIL), task="sums<kofnx>")
    return folder


def test_report_pages_hold_hostile_text_as_text(folder: Path) -> None:
    for run in folder.iterdir():
        text = (run / "report.html").read_text() if (run / "report.html").exists() else report_page(load_run(run))
        check(text)
        assert "kofnx" in text, "the text itself is there"


@pytest.mark.parametrize(
    "args",
    [
        ["compare", "{0}", "{1}", "--html", "{page}"],
        ["curve", "{0}", "--html", "{page}"],
        ["report", "{0}", "--html", "-o", "{page}"],
    ],
    ids=["compare", "curve", "report"],
)
def test_pages_of_verbs_and_the_terminal_hold_hostile_text_as_text(
    args: list[str], folder: Path, tmp_path: Path
) -> None:
    runs = sorted(map(str, folder.iterdir()))
    given = [part.format(*runs, page=tmp_path / "page.html") for part in args]
    done = CliRunner().invoke(command, given)
    assert done.exit_code == 0, done.output
    unobeyed(done.output)
    check((tmp_path / "page.html").read_text())


@pytest.mark.parametrize("verb", ["score", "export"])
def test_other_verbs_show_hostile_text_as_text(verb: str, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "outputs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in small_rows(6, evil=EVIL)))
    more = ["--by", "kind"] if verb == "score" else ["--to", str(tmp_path / "out.csv")]
    done = CliRunner().invoke(command, [verb, str(path), *more])
    assert done.exit_code == 0, done.output
    unobeyed(done.output)


def test_pages_of_the_viewer_hold_hostile_text_as_text(folder: Path) -> None:
    from urllib.parse import quote

    with served(folder) as base:
        runs = [quote(run.name, safe="") for run in sorted(folder.iterdir())]
        pages = ["/", "/trend", f"/compare?run={runs[0]}&run={runs[1]}", f"/?q={quote(EVIL[:200])}"]
        own = [f"?q={quote(EVIL[:200])}", "/-/case?id=q00", f"/-/case?id={quote('q01' + EVIL)}", "?show=extractors"]
        pages += [
            f"/run/{runs[0]}{part}" for part in ("", *own, "/-/charts", "/-/best", "/-/labels", "/-/audit", "/-/export")
        ]
        answers = {one: ask(base, one) for one in pages}
    found_pages = [one for one, answer in answers.items() if answer.status == 200]
    assert len(found_pages) >= len(pages) - 2, {one: answer.status for one, answer in answers.items()}
    for one, answer in answers.items():
        assert answer.status < 500, one
        text = answer.body.decode()
        # charts come as parts of a page, by name
        for part in json.loads(text).values() if one.endswith("/-/charts") else [text]:
            check(part)


def test_what_looks_for_markup_finds_it() -> None:
    for text in (
        f"<p>{ELEMENT}",
        '<p title="" kofny="1">',
        '<a href="javascript:kofnz()">',
        "<script>1</script><kofnx>",
    ):
        with pytest.raises(AssertionError):
            check(text)
    with pytest.raises(AssertionError):
        unobeyed("\x1b[31m")


@pytest.mark.fuzz
@settings(
    max_examples=max(5, int(os.environ.get("KOFN_FUZZ_EXAMPLES", "20")) // 5),
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
@given(st.lists(st.sampled_from([*ENDS, *ATTRIBUTES, *OTHERS, ELEMENT, "<", ">", '"', "'", "&", "\\"]), max_size=12))
def test_any_such_text_is_inert_in_a_report(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("any")
    run = load_run(write(folder / "run", small_rows(4, evil="".join(parts) or "x")))
    check(report_page(run))
