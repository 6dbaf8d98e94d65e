// The cases of a run: a table to sort, filter and search, and one case at a time with its candidates.

const { el, visible, embedded, expandTexts, fadeTexts } = window.kofn;

const PAGE = 50;
const SHOWN = 20000; // characters of one text that are laid out at once
const MORE = 25; // candidates that are laid out at once
const $ = (id) => document.getElementById(id);

let index;
const state = { query: "", filters: new Map(), sort: null, down: false, page: 0, rows: [] };
let columns = [];

// ---------------------------------------------------------------- numbers

function amount(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return String(Number(value.toPrecision(size >= 1 ? 4 : 3)));
}
const seconds = (value) =>
  value === null || value === undefined ? "–" : value < 1 ? `${amount(1000 * value)} ms` : `${amount(value)} s`;
const count = (n) => n.toLocaleString("en");
const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
const isolated = (text) => el("bdi", {}, visible(text));

// ---------------------------------------------------------------- the table

const VERDICTS = { 1: ["pass", "passed"], 0: ["fail", "not passed"], "-1": ["none", "unverified"] };

function sign(kind, words) {
  return el("span", { className: `sign ${kind}` }, words);
}

function verdictSign(i) {
  return sign(...VERDICTS[index.verdict[i]]);
}

function strip(i) {
  if (!index.strip) return `${count(index.passing[i])} / ${count(index.graded[i])}`;
  const marks = [...index.strip[i]].map((m) => el("i", { className: m === "1" ? "s1" : m === "0" ? "s0" : "sx" }));
  const words = `${index.passing[i]} of ${index.graded[i]}`;
  const missing = index.size[i] - index.graded[i];
  const title = `${words} pass${missing ? `, ${missing} not graded` : ""}`;
  const drawn = el("span", { className: "strip", ariaHidden: "true" }, marks);
  return el("span", { title }, drawn, " ", el("span", { className: "quiet small" }, words));
}

function tableColumns() {
  const found = [
    { key: "verdict", title: "verdict", value: (i) => index.verdict[i], cell: verdictSign },
    { key: "id", title: "case", value: (i) => index.id[i], row: true },
    index.input && { key: "input", title: "input", value: (i) => index.input[i], cell: (i) => isolated((index.input[i] ?? "").slice(0, 300).replace(/\s+/g, " ")) },
    index.groups.length > 1 && {
      key: "group", title: "group", kind: "tag", value: (i) => index.groups[index.group[i]], cell: (i) => isolated(index.groups[index.group[i]]),
    },
    ...index.tags.filter((t) => t.sliced && !sameAsGroup(t)).slice(0, 2).map((tag) => ({
      key: `tag ${tag.name}`, title: tag.name, kind: "tag", value: (i) => tag.values[tag.code[i]], cell: (i) => isolated(tag.values[tag.code[i]]),
    })),
    index.failing && { key: "failing", title: "failing", value: (i) => index.failing[i], cell: (i) => isolated(index.failing[i] || "–") },
    index.passing && {
      key: "passing", title: "candidates", value: (i) => (index.graded[i] ? index.passing[i] / index.graded[i] : null), cell: strip,
    },
    scoresDiffer() && { key: "score", title: "score", number: true, value: (i) => index.score[i], cell: (i) => amount(index.score[i]) },
    index.cost && { key: "cost", title: "cost", number: true, value: (i) => index.cost[i], cell: (i) => amount(index.cost[i]) },
    index.seconds && { key: "seconds", title: "time", number: true, value: (i) => index.seconds[i], cell: (i) => seconds(index.seconds[i]) },
  ];
  return found.filter(Boolean);
}

/** Whether a case's score says more than its verdict. */
const scoresDiffer = () => index.score.some((s) => s !== null && s !== 0 && s !== 1);

const sameAsGroup = (tag) =>
  tag.values.length === index.groups.length && tag.values.every((value) => index.groups.includes(value));

function drawHead() {
  const cells = columns.map((column) => {
    const sorted = state.sort === column.key;
    const button = el(
      "button",
      { type: "button", on: { click: () => sortBy(column.key) } },
      visible(column.title),
      el("span", { className: "dir", ariaHidden: "true" }, sorted ? (state.down ? "↓" : "↑") : ""),
    );
    const th = el("th", { scope: "col", className: column.number ? "n" : "" }, button);
    if (sorted) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    th.dataset.key = column.key;
    return th;
  });
  $("table").tHead.replaceChildren(el("tr", {}, cells));
}

function sortBy(key) {
  // up, down, and back to the order of the run
  if (state.sort !== key) [state.sort, state.down] = [key, false];
  else if (!state.down) state.down = true;
  else [state.sort, state.down] = [null, false];
  update();
  for (const th of $("table").tHead.rows[0].cells) if (th.dataset.key === key) th.firstChild.focus();
}

function drawRow(i) {
  const cells = columns.map((column) => {
    if (column.row) {
      const link = el("a", { href: linkTo(i) }, isolated(index.id[i]));
      return el("th", { scope: "row", className: "c-id" }, link);
    }
    const kind = column.kind ?? column.key;
    const td = el("td", { className: `c-${kind}${column.number ? " n" : ""}` }, column.cell(i));
    if (column.number) td.dataset.name = column.title;
    return td;
  });
  const row = el("tr", {}, cells);
  row.dataset.i = i;
  return row;
}

function update() {
  state.rows = sorted(filtered());
  state.page = 0;
  drawHead();
  drawPage();
  const all = index.n < index.total ? ` (of ${count(index.total)} in the run)` : "";
  const n = state.rows.length;
  $("count").textContent = n === index.n ? `${counted(n, "case")}${all}` : `${count(n)} of ${counted(index.n, "case")}${all}`;
}

function drawPage() {
  const rows = state.rows.slice(state.page * PAGE, (state.page + 1) * PAGE);
  $("table").tBodies[0].replaceChildren(...rows.map(drawRow));
  $("table").hidden = rows.length === 0;
  $("empty").hidden = rows.length > 0;
  drawPager();
}

function drawPager() {
  const pages = Math.ceil(state.rows.length / PAGE);
  const pager = $("pager");
  pager.hidden = pages < 2;
  if (pager.hidden) return;
  const go = (page, focus) => {
    state.page = page;
    drawPage();
    $("h-cases").scrollIntoView({ block: "start" });
    const button = [...pager.querySelectorAll("button")].find((b) => b.dataset.go === focus);
    (button.disabled ? $("h-cases") : button).focus({ preventScroll: true });
  };
  const button = (name, words, page, off) => {
    const made = el("button", { type: "button", disabled: off, on: { click: () => go(page, name) } }, words);
    made.dataset.go = name;
    return made;
  };
  const first = state.page * PAGE + 1;
  const last = Math.min(state.rows.length, first + PAGE - 1);
  const [at, end] = [state.page === 0, state.page === pages - 1];
  pager.replaceChildren(
    el("div", {}, button("first", "First", 0, at), button("previous", "Previous", state.page - 1, at)),
    el("span", { className: "quiet" }, `${count(first)}–${count(last)} of ${count(state.rows.length)}`),
    el("div", {}, button("next", "Next", state.page + 1, end), button("last", "Last", pages - 1, end)),
  );
}

// ---------------------------------------------------------------- sorting and filtering

function sorted(rows) {
  const column = columns.find((c) => c.key === state.sort);
  if (!column) return rows;
  const value = new Map(rows.map((i) => [i, column.value(i)]));
  const collator = new Intl.Collator("en", { numeric: true });
  const nothing = (v) => v === null || v === undefined;
  const compare = (a, b) => {
    const [x, y] = [value.get(a), value.get(b)];
    if (nothing(x) || nothing(y)) return nothing(x) - nothing(y) || a - b; // nothing comes last either way
    const order = typeof x === "string" ? collator.compare(x, y) : x - y;
    return (state.down ? -order : order) || a - b;
  };
  return [...rows].sort(compare);
}

let haystack;

function filtered() {
  haystack ??= index.id.map((id, i) => `${id}\n${index.input?.[i] ?? ""}`.toLowerCase());
  const query = state.query.trim().toLowerCase();
  const tests = [...state.filters.values()];
  const out = [];
  for (let i = 0; i < index.n; i++) {
    if ((!query || haystack[i].includes(query)) && tests.every((test) => test(i))) out.push(i);
  }
  return out;
}

/** [title, [[words, test], ...]] of every filter that this run has. */
function filters() {
  const found = [
    ["Verdict", Object.entries(VERDICTS).map(([code, [, words]]) => [words, (i) => index.verdict[i] === Number(code)])],
  ];
  if (index.passing) {
    found.push(["Candidates", [
      ["all fail", (i) => index.graded[i] > 0 && index.passing[i] === 0],
      ["some fail", (i) => index.passing[i] > 0 && index.passing[i] < index.graded[i]],
      ["all pass", (i) => index.graded[i] > 0 && index.passing[i] === index.graded[i]],
      ["not graded", (i) => index.graded[i] < index.size[i] || index.size[i] === 0],
    ]]);
  }
  if (index.tied) found.push(["Vote", [["tied", (i) => index.tied[i] === 1], ["not tied", (i) => index.tied[i] === 0]]]);
  if (index.groups.length > 1) {
    found.push(["Group", index.groups.slice(0, 500).map((name, code) => [name, (i) => index.group[i] === code])]);
  }
  const types = [...new Set(index.types)];
  if (types.length > 1) found.push(["Type", types.map((type) => [type, (i) => index.types[index.group[i]] === type])]);
  for (const tag of index.tags) {
    if (!sameAsGroup(tag)) found.push([tag.name, tag.values.map((value, code) => [value, (i) => tag.code[i] === code])]);
  }
  return found;
}

function drawFilters() {
  const all = [...Array(index.n).keys()];
  for (const [title, choices] of filters()) {
    const some = choices.filter(([, test]) => all.some(test));
    if (some.length === 0 || (some.length === 1 && all.every(some[0][1]))) continue;
    const options = some.map(([words], at) => el("option", { value: String(at) }, plain(words)));
    const select = el("select", {}, el("option", { value: "" }, "any"), options);
    select.addEventListener("change", () => {
      if (select.value === "") state.filters.delete(title);
      else state.filters.set(title, some[Number(select.value)][1]);
      update();
    });
    $("filters").append(el("label", {}, el("span", {}, visible(title)), select));
  }
}

/** Text for places that hold no elements. */
const plain = (text) => visible(text.slice(0, 120)).textContent;

function watchTools() {
  let waiting;
  $("query").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      state.query = $("query").value;
      update();
    }, 90);
  });
  $("tools").addEventListener("submit", (event) => event.preventDefault());
  $("tools").addEventListener("reset", () => {
    state.query = "";
    state.filters.clear();
    state.sort = null;
    setTimeout(update, 0);
  });
  $("table").addEventListener("click", (event) => {
    const row = event.target.closest("tbody tr");
    if (row && !event.target.closest("a") && !String(getSelection())) location.hash = linkTo(Number(row.dataset.i));
  });
  $("table").addEventListener("keydown", (event) => {
    const row = event.target.closest("tbody tr");
    const other = event.key === "ArrowDown" ? row?.nextElementSibling : event.key === "ArrowUp" ? row?.previousElementSibling : null;
    if (!other) return;
    event.preventDefault();
    other.querySelector("a").focus();
  });
}

// ---------------------------------------------------------------- links to cases

let byId;

function linkTo(i) {
  byId ??= Map.groupBy ? Map.groupBy(index.id.keys(), (k) => index.id[k]) : groups();
  const id = encodeURIComponent(index.id[i].toWellFormed?.() ?? index.id[i]);
  return `#case=${id}${byId.get(index.id[i]).length > 1 ? `&row=${index.row[i]}` : ""}`;
}

function groups() {
  const found = new Map();
  index.id.forEach((id, k) => found.get(id)?.push(k) ?? found.set(id, [k]));
  return found;
}

/** The case that the address names: its place in the index, -1 where the page has none like it, else null. */
function addressed() {
  const found = /^#case=([^&]*)(?:&row=(\d+))?$/.exec(location.hash);
  if (!found) return null;
  let id;
  try {
    id = decodeURIComponent(found[1]);
  } catch {
    return -1;
  }
  if (found[2]) {
    const at = index.row.indexOf(Number(found[2]));
    if (at >= 0 && index.id[at] === id) return at;
  }
  return index.id.indexOf(id);
}

// ---------------------------------------------------------------- one case

const chunks = new Map();
let current = null;
let opening = 0;

function chunkOf(i) {
  let at = index.chunks.findLastIndex((first) => first <= i);
  if (!chunks.has(at)) {
    if (chunks.size >= 6) chunks.delete(chunks.keys().next().value);
    chunks.set(at, embedded(`texts-${at}`).then(JSON.parse));
  }
  return chunks.get(at);
}

async function open(i) {
  const dialog = $("case");
  current = i;
  const mine = ++opening;
  if (!dialog.open) dialog.showModal();
  const place = state.rows.indexOf(i);
  $("case-sign").replaceChildren(verdictSign(i));
  $("case-title").replaceChildren(isolated(index.id[i]));
  $("case-place").textContent = place < 0 ? "" : `${count(place + 1)} of ${count(state.rows.length)}`;
  $("previous").disabled = place <= 0;
  $("next").disabled = place < 0 || place === state.rows.length - 1;
  const chunk = await chunkOf(i);
  if (mine !== opening) return; // another case was asked for meanwhile
  $("case-title").replaceChildren(isolated(whole(chunk.id[i - chunk.first])));
  $("case-body").replaceChildren(...caseParts(i, chunk, i - chunk.first));
  $("case-body").scrollTop = 0;
  $("case-body").classList.remove("whole-texts");
  fadeTexts($("case-body"));
  $("case-title").focus({ preventScroll: true });
  dialog.dataset.shown = String(i);
}

function step(by) {
  const place = state.rows.indexOf(current);
  const next = state.rows[place + by];
  if (place < 0 || next === undefined) return;
  history.replaceState(null, "", linkTo(next));
  open(next);
}

function follow() {
  const at = addressed();
  if (at === null) {
    if ($("case").open) $("case").close();
  } else if (at < 0) {
    $("count").textContent = "The page holds no case of this address.";
  } else if (at !== current || !$("case").open) open(at);
}

function closed() {
  if ($("case").open) return; // the event comes late: another case was opened meanwhile
  const was = current;
  const link = current === null ? null : document.querySelector(`#table tr[data-i="${current}"] a`);
  current = null;
  opening++;
  if (addressed() === was) history.replaceState(null, "", "#cases");
  (link ?? $("h-cases")).focus({ preventScroll: Boolean(link) });
}

function watchCase() {
  const dialog = $("case");
  dialog.addEventListener("close", closed);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside the panel
  });
  $("close").addEventListener("click", () => dialog.close());
  $("previous").addEventListener("click", () => step(-1));
  $("next").addEventListener("click", () => step(1));
  dialog.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(".block")) return;
    const by = { j: 1, ArrowRight: 1, k: -1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    step(by);
  });
  addEventListener("hashchange", follow);
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || dialog.open || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    $("query").focus();
  });
}

function caseParts(i, chunk, at) {
  const part = (title, ...children) => el("section", {}, el("h3", {}, title), ...children);
  const has = (column) => column && column[at] !== null && column[at] !== undefined;
  const candidates = index.passing || index.size ? candidatesOf(chunk, at) : [];
  const tags = [...chunk.tags.filter(([, column]) => has(column)).map(([name, column]) => [name, column[at]])];
  return [
    caseLine(i, chunk, at),
    has(chunk.input) && part("Input", block(chunk.input[at])),
    has(chunk.reference) && part("Reference", block(chunk.reference[at])),
    has(chunk.choices) && part("Choices", block(chunk.choices[at])),
    tags.length > 0 && part("Tags", el("div", { className: "tagline" }, tags.map(([name, value]) => tag(name, value)))),
    chunk.fields[at].length > 0 && part("Case", chunk.fields[at].map(([name, value]) => caseField(name, value))),
    chunk.attributes[at].length > 0 && (!index.size || chunk.attributes[at].some((a) => a[1] !== true)) &&
      part("Attributes", chunk.attributes[at].map(attribute)),
    index.tied && answersOf(candidates) && part("Answers", answersOf(candidates)),
    candidates.length > 0 && part(counted(candidates.length, "candidate"), expandButton(candidates), candidateList(markPicks(candidates))),
    chunk.values?.length > 0 && part("Numbers of this case", numbers(chunk, at)),
  ].filter(Boolean);
}

function caseLine(i, chunk, at) {
  const items = [el("span", { className: "quiet" }, "group ", isolated(index.groups[index.group[i]]), ` (${index.types[index.group[i]]})`)];
  if (index.passing) items.push(el("span", {}, `${index.passing[i]} of ${counted(index.graded[i], "candidate")} ${index.passing[i] === 1 ? "passes" : "pass"}`));
  if (index.score[i] !== null && !Number.isInteger(index.score[i])) items.push(el("span", {}, `score ${amount(index.score[i])}`));
  if (index.tied?.[i]) items.push(el("span", { className: "incomplete" }, "tied vote"));
  if (index.cost && index.cost[i] !== null) items.push(el("span", { className: "quiet" }, `cost ${amount(index.cost[i])}`));
  if (index.seconds && index.seconds[i] !== null) items.push(el("span", { className: "quiet" }, seconds(index.seconds[i])));
  if (chunk.origin[at] !== null) items.push(el("span", { className: "quiet" }, "first in ", isolated(whole(chunk.origin[at]))));
  return el("p", { className: "case-line" }, items);
}

const tag = (name, value) => el("span", { className: "tag" }, el("b", {}, visible(name)), isolated(whole(value)));

const whole = (value) => (Array.isArray(value) ? `${value[0]}…${value[2]}` : value);

function caseField(name, value) {
  const text = decoded(value);
  return el("div", { className: "case-field" }, el("p", { className: "side-name" }, visible(name)), block(text, { code: true }));
}

/** A value that is JSON as people read it: a text as itself. */
function decoded(value) {
  if (typeof value !== "string") return value ?? "null";
  try {
    const read = JSON.parse(value);
    const short = JSON.stringify(read);
    return typeof read === "string" ? read : short.length <= 80 ? short : JSON.stringify(read, null, 2);
  } catch {
    return value;
  }
}

// ---------------------------------------------------------------- texts

const SURROGATE = /[\ud800-\udfff]/;

/** Where the n-th character stands: Python counts code points, JavaScript UTF-16 units. */
function unit(text, n) {
  if (!SURROGATE.test(text)) return n;
  let at = 0;
  for (let i = 0; i < n && at < text.length; i++) at += text.codePointAt(at) > 0xffff ? 2 : 1;
  return at;
}

/** A text in a box. `value` is a text, or [start, characters left out, end]. */
function block(value, { span = null, code = false, answer = null } = {}) {
  const [head, left, tail] = Array.isArray(value) ? value : [value, 0, ""];
  const text = head + tail;
  let place = span && span[0] >= 0 ? [unit(text, span[0]), unit(text, span[1])] : spelled(head, tail, answer);
  const box = el("div", { className: `text block${code ? " code" : ""}`, dir: "auto", tabIndex: 0, role: "group", ariaLabel: "text" });
  const write = (from, to) => box.append(...marked(text, from, to, place));
  if (left) {
    write(0, head.length);
    box.append(el("span", { className: "gap" }, `${count(left)} characters left out here; ${index.size ? "candidates" : "reports"}.parquet holds the whole text`));
    write(head.length, text.length);
  } else if (text.length > SHOWN) {
    const half = SHOWN / 2;
    write(0, half);
    const button = el("button", { type: "button" }, `Show the ${count(text.length - SHOWN)} characters between`);
    const gap = el("span", { className: "gap" }, button);
    button.addEventListener("click", () => gap.replaceWith(...marked(text, half, text.length - half, place)));
    box.append(gap);
    write(text.length - half, text.length);
  } else write(0, text.length);
  if (!text && !left) box.append(el("span", { className: "quiet" }, "(empty)"));
  return box;
}

/** The nodes of text[from:to], with what of the answer's place is in it marked. */
function marked(text, from, to, place) {
  const show = (a, b) => (a < b ? [visible(text.slice(a, b), { lines: true })] : []);
  if (!place || place[1] <= from || place[0] >= to) return show(from, to);
  const [a, b] = [Math.max(from, place[0]), Math.min(to, place[1])];
  return [...show(from, a), el("mark", { title: "the extracted answer" }, ...show(a, b)), ...show(b, to)];
}

/** The last place that spells an answer and parts it from other letters, in the end of the text before its start. */
function spelled(head, tail, answer) {
  if (!answer || typeof answer !== "string") return null;
  const letter = /[\p{L}\p{N}]/u;
  const firstLast = [answer[0], answer[answer.length - 1]].map((c) => letter.test(c));
  for (const [text, offset] of [[tail, head.length], [head, 0]]) {
    for (let at = text.lastIndexOf(answer), tries = 0; at >= 0 && tries < 200; at = at ? text.lastIndexOf(answer, at - 1) : -1, tries++) {
      const [before, after] = [text[at - 1] ?? " ", text[at + answer.length] ?? " "];
      if (!(firstLast[0] && letter.test(before)) && !(firstLast[1] && letter.test(after))) {
        return [offset + at, offset + at + answer.length];
      }
    }
  }
  return null;
}

// ---------------------------------------------------------------- candidates

function candidatesOf(chunk, at) {
  const c = chunk.candidates;
  if (!c) return [];
  const [low, high] = [chunk.ends[at], chunk.ends[at + 1]];
  return Array.from({ length: high - low }, (_, k) => {
    const row = low + k;
    const text = c.text?.[row] ?? null;
    const answer = c.answer?.[row] ?? null;
    return {
      k,
      text,
      isText: answer === true,
      answer: answer === true ? whole(text).trim() : answer,
      reasoning: c.reasoning?.[row] ?? null,
      error: c.error?.[row] ?? null,
      note: c.note?.[row] ?? null,
      span: c.span?.[row] ?? null,
      pass: c.passes[0]?.[row] ?? "-",
      scores: c.scores.map((column, m) => [index.metrics[m], column[row], c.passes[m][row]]),
      selectors: c.selectors.map((column, s) => [index.selectors[s], column[row]]),
      picks: [],
      cost: c.cost?.[row] ?? null,
      seconds: c.seconds?.[row] ?? null,
      tokens: c.tokens?.[row] ?? null,
    };
  });
}

/** Whose picks the candidates are: those with the highest score of a selector. */
function markPicks(candidates) {
  index.selectors.forEach((name, s) => {
    const known = candidates.map((c) => c.selectors[s][1]).filter((score) => score !== null);
    if (candidates.length < 2 || known.length === 0 || name === index.metrics[0]) return;
    const best = candidates.filter((c) => c.selectors[s][1] === Math.max(...known));
    for (const c of best) c.picks.push(best.length === 1 ? `picked by ${name}` : `tied pick of ${name}`);
  });
  return candidates;
}

/** A button that lays out all texts of the case whole. */
function expandButton(candidates) {
  if (!candidates.some((c) => c.text !== null)) return null;
  const button = el("button", { type: "button", className: "link small" }, "Expand all");
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => expandTexts($("case-body"), button));
  return button;
}

const PASSES = { 1: ["pass", "pass"], 0: ["fail", "fail"], "-": ["none", "not graded"] };

function candidateList(candidates) {
  const list = el("div", {});
  const show = (from) => {
    list.append(...candidates.slice(from, from + MORE).map(candidate));
    const left = candidates.length - from - MORE;
    if (left <= 0) return;
    const button = el("button", { type: "button" }, `Show ${counted(Math.min(left, MORE), "more candidate")}, ${count(left)} left`);
    button.addEventListener("click", () => {
      button.remove();
      show(from + MORE);
      list.children[from + MORE]?.querySelector("h4").focus();
    });
    list.append(button);
  };
  show(0);
  return list;
}

function candidate(c) {
  const metas = [
    ...c.scores.filter(([name, value]) => value !== null && name !== "pass").map(([name, value]) => `${name} ${amount(value)}`),
    ...c.selectors.filter(([name, value]) => value !== null && !c.scores.some(([metric]) => metric === name)).map(([name, value]) => `${name} ${amount(value)}`),
    c.cost !== null && `cost ${amount(c.cost)}`,
    c.seconds !== null && seconds(c.seconds),
    c.tokens !== null && counted(c.tokens, "token"),
  ].filter(Boolean);
  const shown = c.answer !== null && !c.isText;
  return el(
    "article",
    { className: "candidate" },
    el(
      "header",
      {},
      el("h4", { tabIndex: -1 }, `Candidate ${c.k + 1}`),
      index.metrics.length > 0 && sign(...PASSES[c.pass]),
      c.picks.map((words) => el("span", { className: "badge" }, isolated(words))),
      shown && el("span", { className: "answer", title: "the extracted answer" }, isolated(whole(c.answer))),
      index.has_answers && c.answer === null && c.text !== null && el("span", { className: "meta" }, "no answer"),
      metas.map((words) => el("span", { className: "meta" }, visible(words))),
    ),
    c.error !== null && el("p", { className: "error" }, "error: ", isolated(whole(c.error))),
    c.note !== null && el("p", { className: "note" }, isolated(whole(c.note))),
    c.reasoning !== null && reasoning(c.reasoning),
    c.text !== null ? block(c.text, { span: c.span, answer: shown ? c.answer : null }) : index.has_texts && el("p", { className: "quiet" }, "no output"),
  );
}

function reasoning(value) {
  const size = Array.isArray(value) ? value[0].length + value[1] + value[2].length : value.length;
  const details = el("details", {}, el("summary", {}, `Reasoning, ${counted(size, "character")}`));
  details.addEventListener("toggle", () => details.append(block(value)), { once: true });
  return details;
}

/** The answers with how many gave them, and whether they pass. */
function answersOf(candidates) {
  const given = new Map();
  for (const c of candidates) {
    if (c.answer === null || c.isText) continue;
    const key = whole(c.answer);
    const entry = given.get(key) ?? given.set(key, { n: 0, pass: 0, fail: 0 }).get(key);
    entry.n++;
    entry.pass += c.pass === "1";
    entry.fail += c.pass === "0";
  }
  if (given.size === 0) return null;
  const order = [...given].sort((a, b) => b[1].n - a[1].n).slice(0, 12);
  const rows = order.flatMap(([answer, { n, pass, fail }]) => [
    el("span", { className: "answer" }, isolated(answer.slice(0, 200))),
    el("span", { className: `bar ${pass && !fail ? "pass" : fail && !pass ? "fail" : ""}`, ariaHidden: "true" }, el("i", { style: { "--at": `${(100 * n) / candidates.length}%` } })),
    el("span", { className: "quiet" }, `${n} of ${candidates.length}`, index.metrics.length > 0 && pass + fail > 0 ? (pass && fail ? `, ${pass} pass` : pass ? " ✓" : " ✗") : ""),
  ]);
  const left = given.size - order.length;
  return el("div", {}, el("div", { className: "tally" }, rows), left > 0 && el("p", { className: "quiet small" }, `and ${counted(left, "more answer")}`));
}

function numbers(chunk, at) {
  const several = new Set(index.values.map(([metric]) => metric)).size > 1;
  const rows = index.values.map(([metric, name], v) =>
    el("div", {}, el("span", {}, visible(several ? `${metric} ${name}` : name)), el("span", {}, amount(chunk.values[v][at]))),
  );
  return el("div", { className: "numbers" }, rows);
}

// ---------------------------------------------------------------- attributes

function attribute([name, correct, weight, expected, actual, diff]) {
  const kind = correct === true ? ["pass", "correct"] : correct === false ? ["fail", "wrong"] : ["none", "not verified"];
  const side = (title, value) => el("div", {}, el("p", { className: "side-name" }, title), block(decoded(value), { code: true }));
  const failing = correct !== true;
  const known = expected !== null || actual !== null;
  return el(
    "div",
    { className: "attribute" },
    el("header", {}, el("h4", {}, isolated(name)), sign(...kind), weight !== 1 && el("span", { className: "meta" }, `weight ${amount(weight)}`)),
    known && failing && el("div", { className: "sides" }, side("expected", expected), side("actual", actual)),
    known && !failing && folded("expected and actual", () => el("div", { className: "sides" }, side("expected", expected), side("actual", actual))),
    diff && diffBlock(diff),
  );
}

function folded(title, make) {
  const details = el("details", {}, el("summary", {}, title));
  details.addEventListener("toggle", () => details.append(make()), { once: true });
  return details;
}

function diffBlock(value) {
  const text = Array.isArray(value) ? `${value[0]}\n… ${count(value[1])} characters left out …\n${value[2]}` : value;
  const lines = text.split("\n");
  const of = (line) => (line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : line.startsWith("@@") ? "at" : "");
  if (lines.every((line) => of(line) === "")) return el("p", { className: "text", dir: "auto" }, visible(text, { lines: true }));
  const show = (some) => some.map((line) => el("span", { className: of(line), dir: "auto" }, line ? visible(line, { lines: true }) : " "));
  const box = el("div", { className: "text block code diff", tabIndex: 0, role: "group", ariaLabel: "diff" }, show(lines.slice(0, 1000)));
  if (lines.length > 1000) {
    const button = el("button", { type: "button" }, `Show ${counted(lines.length - 1000, "more line")}`);
    button.addEventListener("click", () => button.replaceWith(...show(lines.slice(1000))));
    box.append(button);
  }
  return box;
}

// ---------------------------------------------------------------- begin

/** Mark the section that is being read. */
function watchSections() {
  const links = new Map([...document.querySelectorAll(".ways a")].map((a) => [a.getAttribute("href").slice(1), a]));
  const seen = new Set();
  const watch = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) seen[isIntersecting ? "add" : "delete"](target.id);
      let done = false;
      for (const [id, link] of links) {
        const now = !done && seen.has(id);
        done ||= now;
        if (now) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    },
    { rootMargin: "-60px 0px -55% 0px" },
  );
  for (const id of links.keys()) watch.observe($(id));
}

async function begin() {
  watchSections();
  index = JSON.parse(await embedded("case-index"));
  columns = tableColumns();
  if (index.failing?.some(Boolean)) state.sort = "verdict"; // of programs, what fails comes first
  drawFilters();
  watchTools();
  watchCase();
  update();
  $("tools").hidden = index.n === 0;
  if (index.n === 0) $("empty").textContent = "There are no cases.";
  document.documentElement.dataset.ready = performance.now().toFixed(); // milliseconds after it was opened
  follow();
}

begin().catch((problem) => {
  $("count").textContent = `The cases cannot be shown: ${problem.message}. A browser of 2023 or later is needed.`;
  throw problem;
});
