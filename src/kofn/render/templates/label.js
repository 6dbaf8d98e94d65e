// Label one thing at a time. What people said is kept in localStorage under the sheet's own key.

const { el, visible, embedded } = window.kofn;
const byId = (id) => document.getElementById(id);
const KEY = `kofn-labels-${byId("top").dataset.key}`;
const WORDS = { 1: "you said: pass", 0: "you said: fail" };
const TITLES = { input: "Input", output: "Output", reference: "Reference" };

let rows = [];
let at = 0;
let said = {};
let name = "labels";

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return found && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

function keep() {
  try {
    localStorage.setItem(KEY, JSON.stringify(said));
  } catch {
    byId("said").textContent = "this browser keeps nothing: download before you close the page";
  }
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
  if (value === null) delete said[at];
  else said[at] = value;
  keep();
  if (at + 1 < rows.length) move(1);
  else show();
}

function download() {
  const lines = rows.map((row, i) => JSON.stringify({ ...row.keep, human: said[i] ?? null }) + "\n");
  const link = el("a", { href: URL.createObjectURL(new Blob(lines, { type: "application/jsonl" })), download: `${name}.labels.jsonl` });
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
  if (event.ctrlKey || event.metaKey || event.altKey || !rows.length) return;
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
  said = Object.fromEntries(Object.entries(stored()).filter(([i, v]) => rows[i] && (v === 0 || v === 1)));
  const first = rows.findIndex((_, i) => said[i] === undefined);
  at = first < 0 ? 0 : first;
  byId("pass").addEventListener("click", () => label(1));
  byId("fail").addEventListener("click", () => label(0));
  byId("skip").addEventListener("click", () => label(null));
  byId("back").addEventListener("click", () => move(-1));
  byId("next").addEventListener("click", () => move(1));
  byId("download").addEventListener("click", download);
  byId("peek").addEventListener("change", show);
  show();
  document.documentElement.dataset.ready = "";
});
