"""Pages for blind labels by people, as `kofn calibrate` reads them: one output at a time, saved at once.

A page shows the input and the output, and the reference on request. Labels are stored by annotator. Neither a judge's
verdict nor the labels of others leave the server, except in the tables that somebody requests.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from pydantic import ConfigDict, Field, ValidationError
from starlette.responses import JSONResponse, RedirectResponse

from kofn.core.format import format_count
from kofn.errors import InputError, KofnError
from kofn.judge.calibration_report import MEANS, annotators_grid
from kofn.runs.files import CANDIDATES
from kofn.runs.run_tables import first_validation_error
from kofn.viewer.case_page import cut_text, joined
from kofn.viewer.run_folder import NotFound
from kofn.viewer.run_labels import (
    AGGREGATES,
    KINDS,
    MAX_QUESTION,
    MAX_ROWS,
    LabelsBody,
    SheetSpec,
    calibrate_commands,
    calibrate_sheet,
    check_selector,
    default_question,
    edit_question,
    graded_metrics,
    judge_metrics,
    list_sheets,
    read_sheet,
    row_key,
    save_labels,
    selector_names,
    sheet_annotators,
    start_sheet,
)
from kofn.viewer.templating import (
    breadcrumbs,
    error_page,
    query_string,
    render_fragment,
    render_page,
    run_url,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.viewer.run_labels import LabelFile
    from kofn.viewer.run_view import RunView
    from kofn.viewer.server import Viewer

MAX_BODY = 256_000  # bytes of a request
MAX_OUTPUTS = 100  # of a set, on one page
DEFAULT_ROWS = 50  # of a new sheet


class _SheetForm(SheetSpec):
    """The form of a new sheet; not strict, because a form sends numbers as text."""

    model_config = ConfigDict(extra="forbid")

    title: str = Field(default="", max_length=40)


# --- pages


async def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page, and what it sends."""
    if request.method != "POST":
        return await viewer.respond(_show, viewer, request, name)
    body = await _read_body(request)
    if body is None:
        return _refusal(request, 413, f"more than {MAX_BODY:,} bytes")
    return await viewer.respond(_post, viewer, request, name, body)


def _show(viewer: Viewer, request: Request, name: str) -> Response:
    view = viewer.runs.get(name)
    params = request.query_params
    if "sheet" not in params:
        return _start_page(view)
    sheet = _open_sheet(view, params["sheet"])
    if "confusion" in params:
        return _confusion_page(view, sheet)
    by = _printable(params.get("by", ""))
    return _label_page(
        view, sheet, _row_at(sheet, params.get("at", ""), by), by, reference=params.get("reference") == "1"
    )


def _open_sheet(view: RunView, name: str) -> LabelFile:
    sheet = read_sheet(view.path, name)
    check_selector(view, sheet.spec)  # anybody may have written the file
    return sheet


def _row_at(sheet: LabelFile, text: str, by: str) -> int:
    """A row, counted from 1 in URLs; without one the row where this annotator continues."""
    number = whole_number(text, 8)
    return sheet.next_row(by) if number is None else min(max(number, 1), sheet.total) - 1


def _start_page(view: RunView) -> Response:
    selectors, judges = selector_names(view), judge_metrics(view)  # no selectors: one output per case, and no sets
    return render_page(
        "labels.html.j2",
        title=f"Label {view.name}",
        crumbs=_crumbs(view),
        run=view.name,
        has_outputs=view.has_texts,
        sheets=[{"sheet": sheet, "url": sheet_url(view, sheet)} for sheet in list_sheets(view.path)],
        kinds={of: words for of, words in KINDS.items() if of == "candidates" or selectors},
        aggregates=AGGREGATES,
        selectors=selectors,
        metrics=graded_metrics(view),
        judges=judges,
        drawn_by=judges[0] if judges else "",
        default_rows=DEFAULT_ROWS,
        max_rows=MAX_ROWS,
        max_question=MAX_QUESTION,
        question=default_question(view, SheetSpec(of="candidates", n=1, metric=judges[0] if judges else "")),
    )


def _label_page(view: RunView, sheet: LabelFile, row: int, by: str, *, reference: bool) -> Response:
    return render_page(
        "labelling.html.j2",
        title=f"{row + 1} of {sheet.total}: label {view.name}",
        crumbs=_crumbs(view, (sheet.name, sheet_url(view, sheet))),
        scripts=["labels.js"],
        run=view.name,
        sheet=sheet,
        row=row,
        by=by,
        states=sheet.states(by),
        max_question=MAX_QUESTION,
        key=row_key(sheet.rows[row]),
        reference=reference,
        item=label_item(view, sheet, row, reference=reference),
        has_reference="reference" in view.case_schema,
        row_url=lambda row: sheet_url(view, sheet, row, reference=reference),
        toggle_url=sheet_url(view, sheet, row, reference=not reference),
        confusion_url=f"{sheet_url(view, sheet)}&confusion=1",
        **calibrate_commands(view, sheet),
    )


def row(viewer: Viewer, request: Request, name: str) -> Response:
    """One row for the script of the page: its markup, and this person's label."""
    params = request.query_params
    view = viewer.runs.get(name)
    sheet = _open_sheet(view, params.get("sheet", ""))
    by = _printable(params.get("by", ""))
    at = _row_at(sheet, params.get("at", ""), by)
    own = sheet.labels[at].get(by, {})
    case, index = row_key(sheet.rows[at])
    item = label_item(view, sheet, at, reference=params.get("reference") == "1")
    return JSONResponse(
        {
            "at": at,
            "id": case,
            "index": index,
            "markup": render_fragment("label_item.html.j2", item=item),
            "human": own.get("human"),
            "skipped": bool(own.get("skipped")),
            "states": sheet.states(by),
        }
    )


def _confusion_page(view: RunView, sheet: LabelFile) -> Response:
    metric, found, counts = calibrate_sheet(view, sheet) or ("", None, None)
    url = sheet_url(view, sheet)
    rates = None if found is None else found.rates
    annotators = sheet_annotators(sheet)
    return render_page(
        "confusion.html.j2",
        title=f"Agreement on labels of {view.name}",
        crumbs=_crumbs(view, (sheet.name, url), ("agreement", f"{url}&confusion=1")),
        run=view.name,
        sheet=sheet,
        back=url,
        metric=metric,
        calibration=found,
        warnings=[] if found is None else [(str(w), w.code) for w in found.warnings],
        n=None if found is None else format_count(found.n_labels, "label"),
        annotators=None if annotators is None else annotators_grid(annotators),
        n_tied=0 if annotators is None else annotators.n_tied,
        confusion=counts,
        rates=[] if rates is None else [(name, getattr(rates, name), MEANS[name]) for name in MEANS],
        **calibrate_commands(view, sheet),
    )


def sheet_url(view: RunView, sheet: LabelFile, row: int | None = None, *, reference: bool = False) -> str:
    """The URL of a sheet, or of a row in it."""
    at = [] if row is None else [("at", str(row + 1))]
    pairs = [("sheet", sheet.name), *at, *([("reference", "1")] if reference else [])]
    return run_url(view.name, "labels") + query_string(pairs)


def _crumbs(view: RunView, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return breadcrumbs(view.name, ("labels", run_url(view.name, "labels")), *more)


def label_item(view: RunView, sheet: LabelFile, row: int, *, reference: bool) -> dict[str, Any]:
    """Input and outputs of a row, and nothing about verdicts or other labels."""
    case, index = row_key(sheet.rows[row])
    at = view.row_of(case)
    missing: dict[str, Any] = {"id": case, "missing": True, "parts": [], "outputs": [], "left": 0}
    if at is None or view.sets is None:
        return missing
    low, high = view.sets.offsets[at : at + 2].tolist()
    if index is not None and not 0 <= index < high - low:
        return missing
    first, n = (low, min(high - low, MAX_OUTPUTS)) if index is None else (low + index, 1)
    texts = view.scan(CANDIDATES).select("text").slice(first, n).collect()["text"]
    columns = view.case(at)
    parts = [("Input", columns.get("input")), ("Choices", columns.get("choices"))]
    parts += [("Reference", columns.get("reference"))] if reference else []
    return {
        "id": case,
        "missing": False,
        "parts": [(title, cut_text(joined(value, "\n") or "")) for title, value in parts if value is not None],
        "outputs": [None if text is None else cut_text(text) for text in texts],
        "left": high - low - n if index is None else 0,
    }


# --- requests that change a sheet


async def _read_body(request: Request) -> bytes | None:
    """The body; None where it is too large, and then it is not read to its end."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            return None
    return bytes(body)


def _post(viewer: Viewer, request: Request, name: str, body: bytes) -> Response:
    """Labels, or a new sheet."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if content_type == "application/json":
            return _save(viewer, name, LabelsBody.model_validate_json(body))
        if content_type != "application/x-www-form-urlencoded":
            return _refusal(request, 415, "expected JSON, or a form")
        form = dict(parse_qsl(body.decode("utf-8", "strict"), keep_blank_values=True, max_num_fields=20))
        if "of" in form:
            return _start(viewer, name, form)
        return _edit(viewer, name, form) if "question" in form else _save_form(viewer, name, form)
    except ValidationError as problem:
        return _refusal(request, 422, first_validation_error(problem))
    except KofnError as problem:
        return _refusal(request, 422, str(problem))
    except ValueError:
        return _refusal(request, 422, "not a form in UTF-8")
    except NotFound as problem:
        return _refusal(request, 404, str(problem))
    except OSError as problem:
        return _refusal(request, 503, f"cannot write to the run's directory: {problem.strerror or problem}")


def _save(viewer: Viewer, name: str, body: LabelsBody) -> Response:
    by, now = _printable(body.by), datetime.now(UTC).isoformat(timespec="seconds")
    sheet = save_labels(viewer.folder.run(name), body.sheet, body.labels, by=by, now=now)
    return JSONResponse({"saved": [label.row for label in body.labels], "states": sheet.states(by)})


def _save_form(viewer: Viewer, name: str, form: Mapping[str, str]) -> Response:
    """One label from a browser without JavaScript, and on to the next row."""
    numbers = {key: int(form[key]) for key in ("row", "index", "human") if form.get(key, "").isdecimal()}
    label = {"id": form.get("id", ""), "human": None, "skipped": not form.get("human"), **numbers}
    body = LabelsBody.model_validate({"sheet": form.get("sheet", ""), "by": form.get("by", ""), "labels": [label]})
    _save(viewer, name, body)
    by = [("by", body.by)] if body.by else []
    to = query_string([("sheet", body.sheet), ("at", str(body.labels[0].row + 2)), *by])
    return RedirectResponse(run_url(name, "labels") + to, status_code=303)


def _edit(viewer: Viewer, name: str, form: Mapping[str, str]) -> Response:
    """Another question for a sheet, and back to it."""
    sheet, question = form.get("sheet", ""), _printable(form["question"])
    if not 0 < len(question) <= MAX_QUESTION:
        raise InputError(f"question: expected 1 to {MAX_QUESTION} characters, found {len(question)}")
    edit_question(viewer.folder.run(name), sheet, question)
    at = [("at", form["at"])] if "at" in form else []
    return RedirectResponse(run_url(name, "labels") + query_string([("sheet", sheet), *at]), status_code=303)


def _start(viewer: Viewer, name: str, form: Mapping[str, str]) -> Response:
    fields = _SheetForm.model_validate({key: value for key, value in form.items() if value != ""})
    # a field that does not concern this kind of sheet must not tell two sheets apart
    others = {"sets": {"selector"}, "candidates": {"aggregate", "selector"}, "picks": {"aggregate"}}[fields.of]
    spec = SheetSpec(
        **fields.model_dump(exclude=others)
        | {"title": _printable(fields.title), "question": _printable(fields.question)}
    )
    sheet = start_sheet(viewer.runs.get(name), spec)
    return RedirectResponse(run_url(name, "labels") + query_string([("sheet", sheet)]), status_code=303)


def _printable(name: str) -> str:
    """The printable characters of a name."""
    return "".join(c for c in name if c.isprintable()).strip()


def _refusal(request: Request, status: int, why: str) -> Response:
    if request.headers.get("content-type", "").startswith("application/json"):
        return JSONResponse({"error": why}, status_code=status)
    return error_page(status, "Not saved", why)
