// Label one thing at a time. Labels are kept in localStorage under the sheet's own key, apart by annotator.

const { el, visible, embedded } = window.kofn;
const byId = (id) => document.getElementById(id);
const KEY = `kofn-labels-${byId("top").dataset.key}`;
const NAME = "kofn-labeller";
const WORDS = { 1: "your label: pass", 0: "your label: fail" };
const TITLES = { input: "Input", output: "Output", reference: "Reference" };

let rows = [];
let at = 0;
let said = {}; // row -> 1 or 0
let answered = {}; // row -> the question that the label answers, where it is not the sheet's own
let asked = "";
let original = "";
let annotator = "";
let name = "labels";

function remembered(key) {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    byId("said").textContent = "this browser cannot store labels: download before you close the page";
  }
}

function stored(key) {
  try {
    const found = JSON.parse(remembered(key) || "{}");
    return found && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

const place = () => `${KEY} ${annotator}`;

function keep() {
  remember(place(), JSON.stringify(said));
  remember(`${place()} questions`, JSON.stringify(answered));
}

/** The labels of this annotator, and where to continue; pages made before there were names kept them without one. */
function load() {
  const found = remembered(place()) ? stored(place()) : stored(KEY);
  said = Object.fromEntries(Object.entries(found).filter(([i, v]) => rows[i] && (v === 0 || v === 1)));
  answered = stored(`${place()} questions`);
  const first = rows.findIndex((_, i) => said[i] === undefined);
  at = first < 0 ? 0 : first;
  byId("who").textContent = annotator;
  show();
}

function ask() {
  byId("by").value = annotator;
  byId("name-dialog").showModal();
}

function setName() {
  const to = byId("by").value.trim();
  if (!to || to === annotator) return;
  annotator = to;
  remember(NAME, annotator);
  load();
}

function setQuestion(text) {
  asked = text;
  byId("asked").textContent = asked;
  byId("question").value = asked;
}

const text = (value) => el("pre", { className: "text labeltext", dir: "auto" }, visible(value, { lines: true }));

function part(title, value) {
  return el("section", { className: "labelpart" }, el("h2", {}, title), text(value));
}

function parts(row) {
  const { outputs, ...others } = row.shown;
  const found = [];
  for (const key of ["input", "output"]) if (others[key] !== undefined) found.push(part(TITLES[key], others[key]));
  (outputs ?? []).forEach((one, i) => found.push(part(`Output ${i + 1} of ${outputs.length}`, one ?? "(none)")));
  if (others.reference !== undefined) found.push(part(TITLES.reference, others.reference));
  return found;
}

function show() {
  const row = rows[at];
  const index = row.keep.index === undefined ? "" : `, candidate ${row.keep.index}`;
  const tags = Object.entries(row.tags).map(([key, value]) => `${key}: ${value}`).join(", ");
  const head = el("p", { className: "small quiet" }, el("bdi", {}, visible(`${row.keep.id}${index}${tags ? ` · ${tags}` : ""}`)));
  const verdict = el("p", { id: "judge", hidden: !byId("peek").checked }, `judge: ${row.keep.judge === 1 ? "pass" : "fail"}`);
  byId("row").replaceChildren(head, ...parts(row), verdict);
  const label = said[at];
  for (const [id, value] of [["pass", 1], ["fail", 0]]) byId(id).setAttribute("aria-pressed", String(label === value));
  byId("said").textContent = WORDS[label] ?? "not labelled";
  byId("place").textContent = `${at + 1} of ${rows.length}`;
  const done = Object.keys(said).length;
  byId("progress").value = done;
  byId("done").textContent = `${done} labelled`;
}

function move(by) {
  at = Math.min(Math.max(at + by, 0), rows.length - 1);
  show();
}

function label(value) {
  if (!annotator) {
    ask();
    return;
  }
  if (value === null) delete said[at];
  else said[at] = value;
  if (value === null || asked === original) delete answered[at];
  else answered[at] = asked;
  keep();
  if (at + 1 < rows.length) move(1);
  else show();
}

function download() {
  const lines = rows.map((row, i) => {
    const given = said[i] === undefined ? {} : { annotator, question: answered[i] ?? original };
    return JSON.stringify({ ...row.keep, human: said[i] ?? null, ...given }) + "\n";
  });
  const link = el("a", { href: URL.createObjectURL(new Blob(lines, { type: "application/jsonl" })), download: `${[name, annotator].map((part) => part.replace(/[^\w.-]+/g, "_")).join(".")}.labels.jsonl` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const KEYS = {
  p: () => label(1),
  f: () => label(0),
  s: () => label(null),
  ArrowLeft: () => move(-1),
  ArrowRight: () => move(1),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !rows.length || event.target.closest("input[type=text], textarea, dialog") || byId("name-dialog").open) return;
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

embedded("rows").then((data) => {
  const sheet = JSON.parse(data);
  rows = sheet.rows;
  name = sheet.name.replace(/[^\w.-]+/g, "_") || "labels";
  original = byId("asked").textContent;
  setQuestion(remembered(`${KEY} question`) || original);
  byId("pass").addEventListener("click", () => label(1));
  byId("fail").addEventListener("click", () => label(0));
  byId("skip").addEventListener("click", () => label(null));
  byId("back").addEventListener("click", () => move(-1));
  byId("next").addEventListener("click", () => move(1));
  byId("download").addEventListener("click", download);
  byId("peek").addEventListener("change", show);
  byId("rename").addEventListener("click", ask);
  byId("name-dialog").querySelector("form").addEventListener("submit", setName);
  byId("question-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setQuestion(byId("question").value.trim() || original);
    remember(`${KEY} question`, asked);
    byId("edit").open = false;
  });
  annotator = remembered(NAME);
  load();
  if (!annotator) ask();
  document.documentElement.dataset.ready = "";
});
