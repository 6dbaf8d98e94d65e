// Label one thing at a time. A label is sent as soon as it is given; labels that could not be saved stay in this browser.

const { el } = window.kofn;
const byId = (id) => document.getElementById(id);
const main = document.querySelector("main[data-sheet]");
const { sheet, run, page, from } = main.dataset;
const total = Number(main.dataset.total);
const KEPT = `kofn-label ${run} ${sheet} `; // and the row: two tabs do not write over each other's
const NAME = "kofn-labeller";
const WORDS = { 1: "your label: pass", 0: "your label: fail" };
const [SOON, LATEST, AT_ONCE] = [1000, 30_000, 100]; // milliseconds, and labels

let at = Number(main.dataset.at);
let name = "";
let states = [...main.dataset.states];
let reference = main.dataset.reference === "1";
let here = null; // the row on the page, as the server sent it
let requests = 0;
let sending = false;
let wait = SOON;
let atOnce = AT_ONCE;
let keeps = true;
let timer = 0;
const own = new Map(); // row -> what was said on this page
const unsaved = new Map(); // row -> what is to be sent
const past = [];
const ahead = new Map(); // row -> a promise of it

// ---------------------------------------------------------------- what the browser keeps

function remembered(key) {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

function remember(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
    return true;
  } catch {
    return false;
  }
}

function unsent() {
  const found = [];
  try {
    for (let i = 0; i < localStorage.length; i++) {
      const key = localStorage.key(i);
      if (key.startsWith(KEPT)) found.push(JSON.parse(localStorage.getItem(key)));
    }
  } catch {
    return [];
  }
  return found.filter((one) => one && Number.isInteger(one.row) && one.row >= 0 && one.row < total && "human" in one);
}

const who = () => name;

// ---------------------------------------------------------------- one thing

function address(row) {
  const query = new URLSearchParams({ sheet, at: row + 1, ...(reference ? { reference: 1 } : {}) });
  return `${page}?${query}`;
}

async function fetched(row) {
  const query = new URLSearchParams({ sheet, ...(row === null ? {} : { at: row + 1 }), by: who(), ...(reference ? { reference: 1 } : {}) });
  const answer = await fetch(`${from}?${query}`);
  if (!answer.ok) throw new Error(`the viewer returned status ${answer.status}`);
  return answer.json();
}

function takeAhead(row) {
  const found = ahead.get(row) ?? fetched(row);
  ahead.clear();
  return found;
}

async function go(row, { silently = false } = {}) {
  if (row !== null) at = Math.min(Math.max(row, 0), total - 1);
  const turn = ++requests;
  try {
    const found = await takeAhead(row === null ? null : at);
    if (turn !== requests) return;
    at = found.at;
    here = found;
    states = [...found.states];
    for (const [row, one] of own) mark({ row, ...one }); // it may have been asked for before these were saved
    const parsed = new DOMParser().parseFromString(found.markup, "text/html"); // made by our own templates, which escape
    byId("thing").replaceChildren(...parsed.body.childNodes);
    history.replaceState(null, "", address(at));
    document.title = document.title.replace(/^\d+/, at + 1);
    if (!silently) scrollTo({ top: 0 });
    paint();
    const next = following();
    if (next !== null && next !== at) ahead.set(next, fetched(next));
    ahead.get(next)?.catch(() => ahead.delete(next));
    main.dataset.shown = at;
  } catch (problem) {
    if (turn === requests) trouble(`Cannot load this row: ${problem.message}. Try again with the arrows.`);
  }
}

function mark({ row, human, skipped }) {
  states[row] = human === null ? (skipped ? "s" : "o") : "d";
}

function current() {
  const { human = null, skipped = false } = own.get(at) ?? here ?? {};
  return { human, skipped };
}

function paint() {
  const said = current();
  for (const [id, value] of [["pass", 1], ["fail", 0]]) byId(id).setAttribute("aria-pressed", String(said.human === value));
  const words = WORDS[said.human] ?? (said.skipped ? "skipped" : "not labelled");
  byId("place").textContent = `${at + 1} of ${total}`;
  byId("said").replaceChildren(el("span", { className: "sr" }, `${at + 1} of ${total}: `), words);
  const done = states.filter((s) => s === "d").length;
  byId("progress").value = done;
  byId("done").textContent = done === total ? "all labelled" : `${done} labelled`;
  byId("undo").disabled = !past.length;
  byId("back").setAttribute("href", address(Math.max(at - 1, 0)));
  byId("next").setAttribute("href", address(Math.min(at + 1, total - 1)));
}

/** The next that is to be labelled, from here on and round; then what was skipped; null where there is none. */
function following() {
  for (const open of ["o", "s"]) {
    for (let step = 1; step < total; step++) {
      const row = (at + step) % total;
      if (states[row] === open) return row;
    }
  }
  return null;
}

// ---------------------------------------------------------------- labels

function say(one) {
  own.set(one.row, { human: one.human, skipped: one.skipped });
  unsaved.set(one.row, one);
  mark(one);
  keeps = remember(KEPT + one.row, JSON.stringify(one));
  send();
}

function label(human, skipped = false) {
  if (!here || here.at !== at) return; // the next thing is not there yet: what would be labelled cannot be seen
  if (!name) {
    askName();
    return;
  }
  past.push({ row: at, id: here.id, index: here.index, ...current() });
  say({ row: at, id: here.id, index: here.index, human, skipped, by: who() });
  const next = following();
  if (next === null) paint();
  else go(next);
}

function undo() {
  const before = past.pop();
  if (!before) return;
  say({ ...before, by: who() });
  go(before.row);
}

function trouble(words) {
  byId("trouble").hidden = !words;
  byId("trouble").textContent = words;
}

function tell() {
  const n = unsaved.size;
  byId("saved").textContent = n ? `${byId("trouble").hidden ? "saving…" : "not saved yet"}${keeps ? "" : " – this browser cannot store labels: stay on the page"}` : "saved";
  main.dataset.unsaved = n;
}

async function post(labels) {
  const by = labels[0].by;
  const body = JSON.stringify({ sheet, by, labels: labels.map(({ by: _, ...one }) => one) });
  const answer = await fetch(page, { method: "POST", headers: { "content-type": "application/json" }, body });
  let reply = {};
  try {
    reply = await answer.json();
  } catch {
    // not ours: a proxy, or a viewer that was stopped
  }
  if (answer.ok) return reply;
  const problem = new Error(reply.error ?? `the viewer returned status ${answer.status}`);
  problem.final = [400, 404, 413, 415, 422].includes(answer.status);
  throw problem;
}

async function send() {
  tell();
  if (sending || !unsaved.size) return;
  clearTimeout(timer);
  sending = true;
  const first = unsaved.values().next().value;
  const batch = [...unsaved.values()].filter((one) => one.by === first.by).slice(0, atOnce);
  let retry = 0;
  try {
    await post(batch);
    for (const one of batch) confirmSaved(one);
    trouble("");
    wait = SOON;
  } catch (problem) {
    retry = failed(problem, batch);
  } finally {
    sending = false;
    tell();
    if (unsaved.size) timer = setTimeout(send, retry);
    else atOnce = AT_ONCE;
  }
}

/** What was saved needs no place here, unless it was changed meanwhile. */
function confirmSaved(one) {
  if (unsaved.get(one.row) !== one) return;
  unsaved.delete(one.row);
  if (remembered(KEPT + one.row) === JSON.stringify(one)) remember(KEPT + one.row, null);
}

function failed(problem, batch) {
  if (problem.final) {
    atOnce = 1; // one by one, so that a refused label does not hold back others
    if (batch.length > 1) return 0;
    confirmSaved(batch[0]); // sending it again would fail again
    trouble(`A label was refused: ${problem.message}`);
    return 0;
  }
  const n = unsaved.size;
  trouble(`${n} label${n === 1 ? " is" : "s are"} not saved yet: ${problem.message}. ${n === 1 ? "It is" : "They are"} kept in this browser and sent again until saved.`);
  wait = Math.min(wait * 2, LATEST);
  return wait;
}

// ---------------------------------------------------------------- keys and buttons

async function toggleReference() {
  if (!byId("reference")) return;
  reference = !reference;
  byId("reference").firstChild.textContent = `${reference ? "Hide" : "Show"} the reference `;
  ahead.clear();
  await go(at, { silently: true });
}

const KEYS = {
  p: () => label(1),
  f: () => label(0),
  s: () => label(null, true),
  u: undo,
  r: toggleReference,
  ArrowLeft: () => go(at - 1),
  ArrowRight: () => go(at + 1),
};

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog") || byId("name-dialog").open) return;
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function on(id, act) {
  byId(id)?.addEventListener("click", (event) => {
    event.preventDefault();
    act();
  });
}

function askName() {
  byId("by").value = name;
  byId("name-dialog").showModal();
}

/** The annotator: what they labelled is shown, and nothing of what was labelled under another name. */
function setName(to) {
  if (!to || to === name) return;
  name = to;
  remember(NAME, name);
  byId("who").textContent = name;
  own.clear();
  past.length = 0;
  ahead.clear();
  go(new URLSearchParams(location.search).has("at") && here ? at : null, { silently: true });
}

function begin() {
  byId("rename").addEventListener("click", askName);
  byId("name-dialog").querySelector("form").addEventListener("submit", () => setName(byId("by").value.trim()));
  for (const one of unsent()) {
    unsaved.set(one.row, one);
    if ((one.by ?? "") === remembered(NAME)) own.set(one.row, { human: one.human, skipped: one.skipped });
  }
  on("pass", KEYS.p);
  on("fail", KEYS.f);
  on("skip", KEYS.s);
  on("undo", undo);
  on("back", KEYS.ArrowLeft);
  on("next", KEYS.ArrowRight);
  on("reference", toggleReference);
  byId("bar").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", press);
  addEventListener("online", send);
  addEventListener("beforeunload", (event) => {
    if (unsaved.size && !unsent().length) event.preventDefault();
  });
  if (unsaved.size) send();
  name = remembered(NAME);
  byId("who").textContent = name;
  const asked = new URLSearchParams(location.search).has("at");
  go(asked ? at : null, { silently: true });
  if (!name) askName();
}

begin();
