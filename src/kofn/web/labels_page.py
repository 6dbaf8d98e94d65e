"""Blind labels by people, for `kofn calibrate`: one thing at a time, saved at once.

What is shown is the input and the output, and the reference where somebody asks for it. The judge's verdict and what
other people said never leave the server, but for the table that somebody asks for afterwards.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import JSONResponse, RedirectResponse

from kofn.calibration.sheet import picks
from kofn.diagnose import counted
from kofn.errors import KofnError
from kofn.report.evaluation import first_problem
from kofn.report.files import CANDIDATES
from kofn.web import labelsheet, shell
from kofn.web.folder import Absent, address
from kofn.web.labelsheet import AGGREGATES, MOST, OF, Drawing, Said, is_own, key_of
from kofn.web.run_page import crumbs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.calibration.calibrate import Calibration
    from kofn.stats import Confusion
    from kofn.web.app import Viewer
    from kofn.web.browsed import Browsed
    from kofn.web.labelsheet import Labels

LARGEST = 256_000  # bytes of what is sent
LONGEST = 100_000  # characters of a text that is shown
OUTPUTS = 100  # of a set
USUAL = 50  # things to label, where nobody says


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Label(_Strict):
    row: int = Field(ge=0, lt=MOST)
    id: str
    index: int | None = None
    human: Annotated[int, Field(ge=0, le=1)] | None
    skipped: bool = False


class _Sent(_Strict):
    """What a page sends: labels of one sheet, and who gave them."""

    sheet: str = Field(max_length=121)
    by: str = Field(default="", max_length=80)
    labels: list[_Label] = Field(min_length=1, max_length=200)


class _Start(BaseModel):
    """What the form asks for; a form sends texts."""

    model_config = ConfigDict(extra="forbid")

    of: Literal["sets", "candidates", "picks"]
    n: int
    seed: int = 0
    metric: str = ""
    aggregate: str = "any_pass"
    selector: str = ""
    title: str = Field(default="", max_length=40)


# --- pages


async def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page, and what it sends."""
    if request.method != "POST":
        return await viewer.made(_show, viewer, request, name)
    sent = await _body(request)
    if sent is None:
        return _refused(request, 413, f"more than {LARGEST:,} bytes")
    return await viewer.made(_take, viewer, request, name, sent)


show.is_async = True  # type: ignore[attr-defined]


def _show(viewer: Viewer, request: Request, name: str) -> Response:
    one = viewer.shelf.get(name)
    asked = request.query_params
    if "sheet" not in asked:
        return _start_page(one)
    labels = _sheet(one, asked["sheet"])
    if "confusion" in asked:
        return _confusion_page(one, labels)
    return _label_page(one, labels, _at(labels, asked.get("at", "")), reference=asked.get("reference") == "1")


def _sheet(one: Browsed, name: str) -> Labels:
    labels = labelsheet.read(one.path, name)
    labelsheet.check_selector(one, labels.drawing)
    return labels


def _at(labels: Labels, given: str) -> int:
    """A row, counted from 1 in addresses; without one the place to go on at."""
    known = given.isascii() and given.isdigit() and len(given) < 9
    return min(max(int(given), 1), labels.total) - 1 if known else labels.open_row()


def _start_page(one: Browsed) -> Response:
    several = one.sets is not None and bool((one.sets.sizes > 1).any())
    can = one.sets is not None and "text" in one.candidate_schema
    judged = labelsheet.judges_of(one)
    kinds = [of for of in OF if (of == "candidates" or several) and (of != "picks" or labelsheet.selectors_of(one))]
    return shell.page(
        "labels.html.j2",
        title=f"Label {one.name}",
        crumbs=_crumbs(one),
        run=one.name,
        can=can,
        sheets=[{"labels": s, "link": at(one, s)} for s in labelsheet.sheets_in(one.path)],
        kinds={of: OF[of] for of in kinds},
        aggregates=AGGREGATES,
        selectors=labelsheet.selectors_of(one),
        metrics=labelsheet.graded_by(one),
        judges=judged,
        drawn_by=judged[0] if judged else "",
        usual=USUAL,
        most=MOST,
    )


def _label_page(one: Browsed, labels: Labels, row: int, *, reference: bool) -> Response:
    return shell.page(
        "labelling.html.j2",
        title=f"{row + 1} of {labels.total}: label {one.name}",
        crumbs=_crumbs(one, (labels.name, at(one, labels))),
        scripts=["labels.js"],
        run=one.name,
        labels=labels,
        row=row,
        place=labels.rows[row],
        key=key_of(labels.rows[row]),
        reference=reference,
        thing=thing(one, labels, row, reference=reference),
        has_reference="reference" in one.case_schema,
        to=lambda row: at(one, labels, row, reference=reference),
        toggled=at(one, labels, row, reference=not reference),
        confusion=f"{at(one, labels)}&confusion=1",
        **_commands(one, labels),
    )


def row(viewer: Viewer, request: Request, name: str) -> Response:
    """One thing for the script of the page: how it looks, and what this person said of it."""
    asked = request.query_params
    one = viewer.shelf.get(name)
    labels = _sheet(one, asked.get("sheet", ""))
    at, by = _at(labels, asked.get("at", "")), _who(asked.get("by", ""))
    here = labels.rows[at]
    mine = is_own(here, by)
    case, index = key_of(here)
    found = {
        "at": at,
        "id": case,
        "index": index,
        "markup": shell.fragment(
            "thing.html.j2", thing=thing(one, labels, at, reference=asked.get("reference") == "1")
        ),
        "human": here.get("human") if mine else None,
        "skipped": bool(here.get("skipped")),
        "taken": not mine,
        "states": labels.states(by),
    }
    return JSONResponse(found)


def at(one: Browsed, labels: Labels, row: int | None = None, *, reference: bool = False) -> str:
    """The address of a sheet, or of a thing in it."""
    asked = {
        "sheet": labels.name,
        **({} if row is None else {"at": row + 1}),
        **({"reference": 1} if reference else {}),
    }
    return f"{address(one.name, 'labels')}?{urlencode(asked)}"


def _crumbs(one: Browsed, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return crumbs_of(one.name, ("labels", address(one.name, "labels")), *more)


# --- what is shown of a thing


def thing(one: Browsed, labels: Labels, row: int, *, reference: bool) -> dict[str, Any]:
    """Input and outputs of a row, and nothing that says what anybody or anything made of them."""
    case, index = key_of(labels.rows[row])
    at = one.row_of(case)
    nothing: dict[str, Any] = {"id": case, "missing": True, "parts": [], "outputs": [], "left": 0}
    if at is None or one.sets is None:
        return nothing
    low, high = int(one.sets.offsets[at]), int(one.sets.offsets[at + 1])
    if index is not None and not 0 <= index < high - low:
        return nothing
    first, n = (low, min(high - low, OUTPUTS)) if index is None else (low + index, 1)
    texts = pl.scan_parquet(one.file(CANDIDATES), glob=False).select("text").slice(first, n).collect()["text"]
    known = one.case(at)
    told = [("Input", known.get("input")), ("Choices", known.get("choices"))]
    told += [("Reference", known.get("reference"))] if reference else []
    return {
        "id": case,
        "missing": False,
        "parts": [(title, _cut(_joined(value))) for title, value in told if value is not None],
        "outputs": [None if text is None else _cut(text) for text in texts],
        "left": high - low - n if index is None else 0,
    }


def _joined(value: Any) -> str:
    return "\n".join(str(v) for v in value) if isinstance(value, (list, pl.Series)) else str(value)


def _cut(text: str) -> str:
    more = len(text) - LONGEST
    return text if more <= 0 else f"{text[:LONGEST]}\n… {more:,} characters more"


# --- what is sent


async def _body(request: Request) -> bytes | None:
    """What was sent; None where it is too much, which is not read to its end."""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > LARGEST:
            return None
    return bytes(found)


def _take(viewer: Viewer, request: Request, name: str, sent: bytes) -> Response:
    """Labels, or a new sheet."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            return _labelled(viewer, name, _Sent.model_validate_json(sent))
        if kind != "application/x-www-form-urlencoded":
            return _refused(request, 415, "expected JSON, or a form")
        form = dict(parse_qsl(sent.decode("utf-8", "strict"), keep_blank_values=True, max_num_fields=20))
        return _started(viewer, name, form) if "of" in form else _by_form(viewer, name, form)
    except ValidationError as problem:
        return _refused(request, 422, first_problem(problem))
    except KofnError as problem:
        return _refused(request, 422, str(problem))
    except ValueError:
        return _refused(request, 422, "not a form in UTF-8")
    except Absent as problem:
        return _refused(request, 404, str(problem))
    except OSError as problem:
        return _refused(request, 503, f"nothing can be saved in the run's directory: {problem.strerror or problem}")


def _labelled(viewer: Viewer, name: str, sent: _Sent) -> Response:
    said = [Said(**label.model_dump()) for label in sent.labels]
    labels, left = labelsheet.save(viewer.folder.run(name), sent.sheet, said, by=_who(sent.by), now=_now())
    return JSONResponse({"saved": [one.row for one in said], "left": left, "states": labels.states(_who(sent.by))})


def _by_form(viewer: Viewer, name: str, form: Mapping[str, str]) -> Response:
    """A label without a script, and on to the next thing."""
    numbers = {key: int(form[key]) for key in ("row", "index", "human") if form.get(key, "").isdecimal()}
    known = {"id": form.get("id", ""), "human": None, "skipped": not form.get("human"), **numbers}
    sent = _Sent.model_validate({"sheet": form.get("sheet", ""), "by": form.get("by", ""), "labels": [known]})
    _labelled(viewer, name, sent)
    asked = urlencode({"sheet": sent.sheet, "at": sent.labels[0].row + 2})
    return RedirectResponse(f"{address(name, 'labels')}?{asked}", status_code=303)


def _started(viewer: Viewer, name: str, form: Mapping[str, str]) -> Response:
    given = _Start.model_validate({key: value for key, value in form.items() if value != ""})
    drawing = Drawing(
        of=given.of,
        n=given.n,
        seed=given.seed,
        metric=given.metric,
        aggregate=given.aggregate if given.of == "sets" else "any_pass",
        selector=given.selector if given.of == "picks" else "",
        title=_who(given.title),
    )
    sheet = labelsheet.start(viewer.shelf.get(name), drawing)
    return RedirectResponse(f"{address(name, 'labels')}?{urlencode({'sheet': sheet})}", status_code=303)


def _who(name: str) -> str:
    """A name as it is kept: what can be seen of it."""
    return "".join(c for c in name if c.isprintable()).strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _refused(request: Request, status: int, why: str) -> Response:
    if request.headers.get("content-type", "").startswith("application/json"):
        return JSONResponse({"error": why}, status_code=status)
    return shell.problem(status, "This cannot be saved", why)


# --- what the labels say, for whoever asks


def _commands(one: Browsed, labels: Labels) -> dict[str, Any]:
    """What to type when labels are there."""
    graded, drawing = labelsheet.graded_by(one), labels.drawing
    words = ["kofn", "calibrate", str(labels.path), "--apply", str(one.path)]
    metric = drawing.metric if drawing.metric in graded else ""
    words += ["--metric", metric] if metric and metric != graded[0] else []
    words += ["--aggregate", drawing.aggregate] if drawing.of == "sets" and drawing.aggregate != "any_pass" else []
    words += ["--selected", "--by-selector", drawing.selector] if drawing.of == "picks" else []
    judge = shlex.join(["kofn", "judge", str(one.path)]) if not graded else ""
    return {"command": shlex.join(words), "judge_first": judge, "graded": bool(graded)}


def calibration(one: Browsed, labels: Labels) -> tuple[str, Calibration, Confusion] | None:
    """The metric, how well it agrees with the labels so far, and the labels counted; None where there are none."""
    from kofn.calibration.calibrate import Settings, calibrate
    from kofn.calibration.labels import read_labels
    from kofn.stats import Confusion, weights_by_verdict

    graded = labelsheet.graded_by(one)
    if not graded or not labels.done:
        return None
    metric = labels.drawing.metric if labels.drawing.metric in graded else graded[0]
    verdicts = labelsheet.verdicts_of(one, labels.drawing, metric)
    rows = replace(read_labels(labels.path), judge=_of_rows(one, labels, verdicts), source=labels.path.name)
    both = np.isfinite(rows.people) & np.isfinite(rows.said)
    counts = Confusion.of(rows.people[both], rows.said[both])
    weights = np.ones(labels.total)
    if labels.drawing.of == "picks":
        assert one.sets is not None
        verdicts = verdicts[picks(one.sets, labels.drawing.selector)]
    weights[both] = weights_by_verdict(rows.said[both], verdicts[np.isfinite(verdicts)])
    rows = replace(rows, weights=weights)  # as `kofn calibrate --apply` weighs labels of the judged things
    return metric, calibrate(rows, None, Settings(n_resamples=2_000)), counts


def _of_rows(one: Browsed, labels: Labels, verdicts: Any) -> Any:
    """The verdict on every row as it is now; NaN where it is not graded, or not there any more."""
    assert one.sets is not None
    keys = [key_of(row) for row in labels.rows]
    known = one.scores.select("id", at=pl.int_range(pl.len()))
    at = pl.DataFrame({"id": [case for case, _ in keys]}).join(known, on="id", how="left", maintain_order="left")["at"]
    out = np.full(len(keys), np.nan)
    for i, (case, (_, index)) in enumerate(zip(at.to_list(), keys, strict=True)):
        if case is None or (index is not None and not 0 <= index < one.sets.sizes[case]):
            continue
        out[i] = verdicts[case if index is None else one.sets.offsets[case] + index]
    return out


def _confusion_page(one: Browsed, labels: Labels) -> Response:
    from kofn.calibration.told import MEANS, RATES

    found = calibration(one, labels)
    rates = None if found is None else found[1].rates
    return shell.page(
        "confusion.html.j2",
        title=f"Labels against verdicts in {one.name}",
        crumbs=_crumbs(one, (labels.name, at(one, labels)), ("against verdicts", f"{at(one, labels)}&confusion=1")),
        run=one.name,
        labels=labels,
        back=at(one, labels),
        metric=None if found is None else found[0],
        found=None if found is None else found[1],
        n=None if found is None else counted(found[1].n_labels, "label"),
        confusion=None if found is None else found[2],
        rates=[] if rates is None else [(name, getattr(rates, name), MEANS[name]) for name in RATES],
        **_commands(one, labels),
    )
