// Best of n as it is dragged: the server makes the table, the rule of recommend_n.js is applied to it here.

const { el, prose, visible } = window.kofn;
const { priced, choose, number, between, seconds, dollars, dear, fixed, grouped } = window.kofn.best;

const byId = (id) => document.getElementById(id);
const form = byId("levers");
const TOP = 200; // positions of a slider
const OF_SERVER = ["metric", "threshold", "selector", "low", "measure"];
const OWN = ["n", "gain", "cost", "latency", "sequential", "budget"];
const NO_SIDE = ["", "vote", "random"]; // selectors without a lowest score

let answer = JSON.parse(byId("best").textContent);

// ---------------------------------------------------------------- what is wanted

function field(name) {
  const one = byId(name);
  if (!one || one.disabled) return "";
  return one.type === "checkbox" ? (one.checked ? "1" : "") : one.value.trim();
}

function amount(name) {
  const text = field(name);
  const found = text === "" ? null : Number(text);
  return found !== null && Number.isFinite(found) && found > 0 ? found : null;
}

const wanted = () => ({
  gain: amount("gain"),
  latency: amount("latency"),
  budget: amount("budget"),
  sequential: field("sequential") === "1",
});

/** What is asked for, without what is usual; `names` of the fields. */
function query(names) {
  const out = new URLSearchParams();
  for (const name of names) {
    const value = field(name);
    if (value !== (byId(name)?.dataset.usual ?? "")) out.set(name, value);
  }
  return out.toString();
}

let keeping = 0;

/** What is wanted, in the address: when somebody rests, for browsers refuse an address that changes with every move. */
function keepInAddress(wait) {
  clearTimeout(keeping);
  const search = query([...OF_SERVER, ...OWN]);
  const keep = () => history.replaceState(null, "", `${location.pathname}${search ? `?${search}` : ""}`);
  if (wait) keeping = setTimeout(keep, wait);
  else keep();
}

// ---------------------------------------------------------------- sliders beside their numbers

const rounded = (x) => Number(x.toPrecision(3));
const onLog = (low, high) => ({
  to: (p) => rounded(low * (high / low) ** p),
  from: (x) => Math.log(x / low) / Math.log(high / low),
});

/** Each slider: the number at a position from 0 to TOP ("" for none), and the position of a number. */
function scales() {
  const rows = answer.table.rows;
  const last = rows.at(-1);
  const table = priced(answer.table, amount("cost"));
  const gains = table.rows.map((row) => row.gain_per_cost).filter((gain) => gain > 0);
  const most = gains.length ? Math.max(...gains) : 1;
  const gain = onLog(Math.max(gains.length ? Math.min(...gains) / 2 : most / 100, most / 1e5), most * 2);
  const measured = answer.table.cost || amount("cost") || 0.001;
  const cost = onLog(measured / 30, measured * 30);
  const time = 1.2 * (field("sequential") === "1" ? last.seconds_sequential : last.seconds) || 1;
  const sum = 1.2 * last.k * table.cost;
  const upTo = (end) => ({ to: (p) => (p === TOP ? "" : rounded((end * (p + 1)) / TOP)), from: (x) => (x === null ? TOP : (x / end) * TOP - 1) });
  return {
    gain: { to: (p) => (p === 0 ? "" : gain.to((p - 1) / (TOP - 1))), from: (x) => (x === null ? 0 : 1 + gain.from(x) * (TOP - 1)) },
    cost: { to: (p) => cost.to(p / TOP), from: (x) => cost.from(x ?? measured) * TOP },
    latency: upTo(time),
    budget: upTo(sum),
    n: { to: (p) => rows[p].k, from: () => rows.findIndex((row) => row.k === lookedAt().k) },
    threshold: { to: (p) => p, from: (x) => x ?? answer.steps.usual },
  };
}

/** The sliders where their numbers are; what they say to those who cannot see them. */
function placeSliders() {
  const all = scales();
  for (const [name, scale] of Object.entries(all)) {
    const slider = byId(`${name}-range`);
    const number = byId(name);
    if (!slider || slider === document.activeElement && slider.matches(":active")) continue; // being dragged
    if (name === "threshold" && !answer.steps) continue;
    const given = number.value.trim() === "" ? null : Number(number.value);
    slider.value = String(scale.from(given));
  }
  for (const name of Object.keys(all)) {
    const text = byId(name).value.trim();
    byId(`${name}-range`).setAttribute("aria-valuetext", text || (name === "n" ? `${lookedAt().k}, as recommended` : byId(name).placeholder));
  }
}

function setUpSliders() {
  const limits = byId("threshold-range");
  if (answer.steps) {
    limits.min = answer.steps.low;
    limits.max = answer.steps.high;
    limits.step = answer.steps.by;
  }
  byId("lever-threshold").hidden = !answer.steps;
  const n = byId("n-range");
  n.max = String(answer.table.rows.length - 1);
  byId("n").max = String(answer.table.rows.at(-1).k);
}

// ---------------------------------------------------------------- what is shown

let table = null;
let choice = null;

/** The row of the n that is looked at: the one that was set, else the recommended one, else the last. */
function lookedAt() {
  const n = amount("n") ?? choice?.n ?? Infinity;
  return table.rows.findLast((row) => row.k <= n) ?? table.rows[0];
}

function update() {
  table = priced(answer.table, amount("cost"));
  for (const id of ["budget", "budget-range"]) byId(id).disabled = table.counted;
  choice = choose(table, wanted());
  const row = lookedAt();
  byId("word").textContent = choice.n === null ? "No n chosen" : `n = ${choice.n}`;
  byId("word").parentElement.classList.toggle("passed", choice.n !== null);
  const said = `${choice.reason[0].toUpperCase()}${choice.reason.slice(1)}.`;
  if (byId("reason").textContent !== said.replaceAll("`", "")) byId("reason").replaceChildren(prose(said)); // it is read out when it changes
  byId("n").placeholder = String(row.k);
  showStats(row);
  showTable(row);
  showInCharts(row.k);
  byId("gain").labels[0].textContent = `Least gain a ${table.counted ? "candidate" : "dollar"}`;
  byId("gain-range").setAttribute("aria-label", byId("gain").labels[0].textContent);
  showCommand();
  placeSliders();
}

const stat = (name, value, detail) =>
  el("div", { className: "stat" }, el("dt", {}, name), el("dd", { className: "value" }, value), detail ? el("dd", { className: "detail" }, detail) : null);

function showStats(row) {
  byId("at").hidden = false;
  byId("h-at").textContent = row.k === 1 ? "With one candidate" : `With ${row.k} candidates`;
  const k = row.k;
  const out = [stat(`any@${k}`, number(row.any), between(row.any_low, row.any_high))];
  if (row.selected !== null) out.push(stat(`selected@${k}`, number(row.selected), between(row.selected_low, row.selected_high)));
  if (row.majority !== null) out.push(stat(`vote@${k}`, number(row.majority), between(row.majority_low, row.majority_high)));
  out.push(stat("if independent", number(row.independent), `any of ${k}`));
  if (row.gain !== null) out.push(stat(`number ${k} adds`, number(row.gain), table.counted ? "" : `${dear(row.gain_per_cost)} a dollar`));
  if (!table.counted) out.push(stat("cost of a case", dollars(row.cost), `${dollars(table.cost)} a candidate`));
  else if (row.tokens !== null) out.push(stat("tokens of a case", grouped(fixed(row.tokens, 0)), ""));
  if (row.seconds !== null) out.push(stat("latency", seconds(row.seconds), `${seconds(row.seconds_sequential)} in sequence`));
  byId("stats").replaceChildren(...out);
}

/** The columns of `kofn curve`; those in which nothing is known are left out. */
function columns() {
  const known = (show) => (value) => (value === null ? "-" : show(value));
  const three = known((x) => fixed(x, 3));
  const cells = [
    ["k", (row) => String(row.k)],
    ["any@k", (row) => three(row.any)],
    [`${+(100 * answer.level).toPrecision(6)}% interval`, (row) => between(row.any_low, row.any_high) || "-"],
    ["independent", (row) => three(row.independent)],
    ["selected@k", (row) => three(row.selected)],
    ["maj@k", (row) => three(row.majority)],
    ["gain", (row) => three(row.gain)],
  ];
  if (!table.counted) cells.push(["gain a dollar", (row) => known(dear)(row.gain_per_cost)]);
  else if (table.tokens) cells.push(["gain a token", (row) => known(dear)(row.gain === null ? null : row.gain / table.tokens)]);
  if (!table.counted) cells.push(["cost", (row) => dollars(row.cost)]);
  const time = known((x) => seconds(x).slice(0, -2));
  cells.push(["tokens", (row) => known((x) => grouped(fixed(x, 0)))(row.tokens)], ["seconds", (row) => time(row.seconds)], ["in sequence", (row) => time(row.seconds_sequential)]);
  return cells.filter(([, cell]) => table.rows.some((row) => cell(row) !== "-"));
}

function showTable(at) {
  const shown = columns();
  const head = el("tr", {}, ...shown.map(([name]) => el("th", { scope: "col", className: "n" }, name)));
  const rows = table.rows.map((row) =>
    el(
      "tr",
      { className: [row.k === choice.n ? "is-best" : "", row.k === at.k ? "is-at" : ""].join(" ").trim() },
      ...shown.map(([name, cell]) => (name === "k" ? el("th", { scope: "row", className: "n" }, cell(row), row.k === choice.n ? el("span", { className: "sr" }, " recommended") : null) : el("td", { className: "n" }, cell(row)))),
    ),
  );
  byId("by-k").tHead.replaceChildren(head);
  byId("by-k").tBodies[0].replaceChildren(...rows);
}

/** What else goes with a table: its curves' names, warnings, facts, notes, which measures there are. */
function showBeside() {
  byId("keys")?.replaceChildren(...answer.keys.map(([name, colour, look]) => el("li", {}, el("i", { className: look, style: { "--key": colour } }), name)));
  byId("gains-key")?.style.setProperty("--key", { any: "var(--accent)", selected: "var(--mark-line)", majority: "var(--second)" }[answer.key.measure]);
  if (byId("band-note")) byId("band-note").textContent = answer.ends ? `Bands are ${+(100 * answer.level).toPrecision(6)}% intervals over cases.` : "";
  byId("warnings").hidden = !answer.warnings.length;
  byId("warnings").querySelector("ul").replaceChildren(...answer.warnings.map(([text, code]) => el("li", { "data-code": code }, prose(text))));
  byId("notes").replaceChildren(...answer.notes.map((text) => el("li", {}, prose(text))));
  byId("facts").replaceChildren(...answer.facts.map(([name, text]) => el("tr", {}, el("th", { scope: "row", className: "quiet" }, name), el("td", {}, visible(text)))));
  for (const option of byId("measure").options) option.disabled = !answer.measures.includes(option.value);
  byId("measure").value = answer.key.measure;
  byId("low").disabled = NO_SIDE.includes(byId("selector").value);
}

/** The command that says the same. */
function showCommand() {
  const quoted = (text) => (/^[\w./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const { metric, threshold, selector, low, measure } = answer.key;
  const pairs = [
    ["--metric", byId("metric") ? metric : null],
    ["--threshold", threshold],
    ["--selector", selector || null],
    ["--measure", measure],
    ["--min-gain-per-dollar", amount("gain")],
    ["--cost-per-candidate", amount("cost") ?? (table.counted && amount("gain") !== null ? 1 : null)],
    ["--max-latency", amount("latency")],
    ["--budget", amount("budget")],
  ];
  const words = pairs.filter(([, value]) => value !== null).flatMap(([name, value]) => [name, quoted(String(value))]);
  if (amount("latency") !== null && field("sequential") === "1") words.push("--sequential");
  byId("terminal").hidden = low; // there a selector's file says it
  byId("terminal").querySelector("code").textContent = ["kofn curve", quoted(document.querySelector("main").dataset.run), ...words].join(" ");
}

// ---------------------------------------------------------------- charts

const plotOf = (id) => document.querySelector(`[data-chart="${id}"] .plot > svg`);

/** Put a line of a chart at a value of its axis; it is hidden where there is none, or outside. */
function moveGuide(svg, name, axis, value, words) {
  const guide = svg.querySelector(`[data-guide="${name}"]`);
  const [low, high, log] = JSON.parse(svg.dataset.scales)[axis];
  guide.toggleAttribute("hidden", value === null || value < low || value > high);
  if (guide.hasAttribute("hidden")) return;
  const share = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  const at = `${100 * (axis === "x" ? share : 1 - share)}%`;
  for (const end of [1, 2]) guide.querySelector("line").setAttribute(`${axis}${end}`, at);
  const label = guide.querySelector("text");
  if (!label) return;
  label.textContent = words;
  label.setAttribute("x", at);
  label.setAttribute("dx", share > 0.6 ? -5 : 5); // in the right part it stands left of its line
  label.setAttribute("text-anchor", share > 0.6 ? "end" : "start");
}

/** The recommended n and the one that is looked at, in the charts. */
function showInCharts(at) {
  const [curve, gains] = ["curve", "gains"].map(plotOf);
  if (!curve) return;
  const best = choice.n;
  moveGuide(curve, "best", "x", best, `recommended: ${best}`);
  moveGuide(curve, "at", "x", at === best ? null : at, `n = ${at}`);
  const gain = amount("gain");
  moveGuide(gains, "least", "y", gain === null ? null : gain * table.cost);
  for (const bar of gains.querySelectorAll("[data-key]")) bar.setAttribute("fill", Number(bar.dataset.key) <= (best ?? 0) ? answer.kept : "var(--some)");
}

/** The charts of another table; they are made by our own templates, which escape. */
function takeCharts() {
  for (const [id, markup] of Object.entries(answer.charts ?? {})) {
    const figure = document.querySelector(`[data-chart="${id}"]`);
    const made = new DOMParser().parseFromString(markup, "text/html");
    for (const part of [".plot", "script.spec"]) figure?.querySelector(part).replaceWith(made.querySelector(part));
  }
}

// ---------------------------------------------------------------- another table

let loaded = query(OF_SERVER);
let busy = false;
let waiting = null;

const tell = (text) => (byId("status").textContent = text);

async function get(search, signal) {
  const reply = await fetch(`${form.dataset.from}?${search}`, { signal });
  const found = await reply.json();
  if (found.problem) throw new Error(found.problem);
  return found;
}

function show() {
  setUpSliders();
  showBeside();
  update();
  document.documentElement.dataset.explored = loaded;
}

function take(found) {
  answer = found;
  takeCharts();
  show();
}

/** Ask for tables until what is shown is what is wanted; one request at a time, however fast somebody drags. */
async function refresh() {
  if (busy) return;
  busy = true;
  waiting?.abort();
  try {
    for (let search = query(OF_SERVER); search !== loaded; search = query(OF_SERVER)) {
      tell("Being computed…");
      loaded = search;
      take(await get(search));
      tell("");
    }
  } catch (problem) {
    tell(`Still the table before: ${problem.message}`);
  }
  busy = false;
  waitForEnds();
}

/** The intervals of a large run come after its values. */
async function waitForEnds() {
  if (answer.ends) return;
  const search = loaded;
  waiting = new AbortController();
  try {
    tell("Intervals of so many candidates take a moment…");
    await new Promise((resolve) => setTimeout(resolve, 300));
    if (busy || search !== loaded) return;
    const found = await get(`${search}${search ? "&" : ""}ends=1`, waiting.signal);
    if (busy || search !== loaded) return;
    take(found);
    tell("");
  } catch (problem) {
    if (problem.name !== "AbortError") tell(`The intervals cannot be computed: ${problem.message}`);
  }
}

// ---------------------------------------------------------------- what people do

let later = 0;

function changed(name) {
  if (name === "metric") byId("threshold").value = "";
  if (name === "selector") byId("low").disabled = NO_SIDE.includes(byId("selector").value);
  if (name === "selector" && byId("selector").value === "" && byId("measure").value === "selected") byId("measure").value = "any";
  keepInAddress(200);
  update();
  if (!OF_SERVER.includes(name)) return;
  clearTimeout(later);
  later = setTimeout(refresh, name === "threshold" ? 120 : 0);
}

form.addEventListener("input", (event) => {
  const { id, type } = event.target;
  if (type !== "range") return void changed(id);
  const name = id.replace(/-range$/, "");
  byId(name).value = String(scales()[name].to(Number(event.target.value)));
  changed(name);
});
form.addEventListener("change", (event) => {
  keepInAddress(0);
  if (event.target.type === "range") update(); // it was let go: it stands where its number is
});
form.addEventListener("submit", (event) => event.preventDefault());

byId("show").parentElement.hidden = true;
for (const slider of form.querySelectorAll("input[type=range]")) slider.hidden = false;
show();
waitForEnds();
