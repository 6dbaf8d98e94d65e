// What every page needs: text that cannot become markup, embedded data, charts.

const HIDDEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e007f}\ud800-\udfff]|\r(?!\n)/u;
const HIDDEN_OR_BREAK = new RegExp(`${HIDDEN.source}|[\\t\\n\\r]`, "u");

/** An element with properties and children; strings become text, never markup. */
function el(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [type, handler] of Object.entries(value)) node.addEventListener(type, handler);
    else if (key === "style") for (const [rule, v] of Object.entries(value)) node.style.setProperty(rule, v);
    else if (key in node && key !== "role") node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const codeName = (character) => "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

/** Text as nodes: characters that would hide or move other text are shown as chips with their code. */
function visible(text, { lines = false } = {}) {
  const out = document.createDocumentFragment();
  const pattern = new RegExp((lines ? HIDDEN : HIDDEN_OR_BREAK).source, "gu");
  let from = 0;
  for (const found of text.matchAll(pattern)) {
    if (found.index > from) out.append(text.slice(from, found.index));
    out.append(el("span", { className: "chip", title: "a character that cannot be seen" }, codeName(found[0])));
    from = found.index + found[0].length;
  }
  if (from < text.length) out.append(text.slice(from));
  return out;
}

const ready = new Promise((resolve) => {
  if (document.readyState !== "loading") resolve();
  else document.addEventListener("DOMContentLoaded", () => resolve(), { once: true });
});

/** The text of a block of embedded data: base64 of gzip. It may be asked for while the browser still reads the page. */
async function embedded(id) {
  const there = () => document.getElementById(id)?.nextElementSibling || document.readyState !== "loading";
  while (!there()) await new Promise((resolve) => setTimeout(resolve, 20));
  const packed = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// ---------------------------------------------------------------- charts

const NARROW = 520;

const LOOK = {
  background: "transparent",
  aria: false,
  font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
  view: { stroke: null },
  text: { fontSize: 12.5 },
  axis: {
    labelColor: "var(--muted)",
    titleColor: "var(--muted)",
    labelFontSize: 12.5,
    titleFontSize: 12.5,
    titleFontWeight: "normal",
    titlePadding: 8,
    labelPadding: 6,
    gridColor: "var(--line)",
    domain: false,
    ticks: false,
  },
  axisY: { labelColor: "var(--ink)" },
  axisYQuantitative: { labelColor: "var(--muted)" },
  axisX: { labelFlush: false },
};

/** The specification with what it changes on a narrow screen. */
function fitted(spec, narrow) {
  const changed = { ...spec, ...(narrow ? spec.usermeta?.narrow : {}) };
  changed.params = (spec.params ?? []).map((p) => (p.name === "narrow" ? { ...p, value: narrow } : p));
  changed.autosize = { type: "fit-x", contains: "padding", ...spec.autosize };
  delete changed.usermeta;
  return changed;
}

const views = new Map();

async function draw(figure, spec) {
  const id = figure.dataset.chart;
  let plot = figure.querySelector(".plot");
  if (!plot) figure.prepend((plot = el("div", { className: "plot" })));
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", spec.description ?? id);
  const narrow = plot.clientWidth < NARROW;
  const old = views.get(id);
  if (old) old.made.finalize();
  const target = el("div", { style: { width: "100%" } });
  plot.replaceChildren(target);
  const made = await window.vegaEmbed(target, fitted(spec, narrow), {
    mode: "vega-lite",
    renderer: "svg",
    actions: false,
    ast: true, // an interpreter of expressions: the page allows no eval
    defaultStyle: false,
    tooltip: showTip,
    config: LOOK,
  });
  for (const name of ["role", "aria-label", "aria-roledescription"]) target.removeAttribute(name);
  target.querySelector("svg")?.setAttribute("aria-hidden", "true"); // the plot around it says what is drawn
  views.set(id, { made, narrow });
  for (const select of document.querySelectorAll("select[data-of]")) {
    if (select.dataset.of === id) await choose(select, spec);
  }
}

async function choose(select, spec) {
  const { made } = views.get(select.dataset.of);
  await made.view.signal(select.dataset.param, select.value).runAsync();
  if (select.dataset.changed) {
    made.view.container().closest(".plot").setAttribute("aria-label", `${select.value}: the numbers are in the table below`);
  }
}

function showTip(_handler, event, _item, value) {
  let tip = document.getElementById("tip");
  if (value === null || value === undefined || value === "") return void tip?.remove();
  if (!tip) document.body.append((tip = el("div", { id: "tip", ariaHidden: "true" })));
  const rows = Object.entries(value).map(([name, shown]) =>
    name.trim() === ""
      ? el("div", { className: "name" }, visible(String(shown)))
      : el("div", {}, el("span", {}, name), el("span", {}, visible(String(shown)))),
  );
  tip.replaceChildren(...rows);
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - width - 8);
  const top = event.clientY + 14 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 14;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

/** Draw charts by their specifications, each in its figure. */
async function drawThese(specs) {
  const figures = [...document.querySelectorAll("[data-chart]")].filter((f) => f.dataset.chart in specs);
  for (const figure of figures) {
    await new Promise((resolve) => setTimeout(resolve, 0)); // a page full of charts stays quick to the touch
    await draw(figure, specs[figure.dataset.chart]);
  }
  for (const select of document.querySelectorAll("select[data-of]")) {
    if (!(select.dataset.of in specs)) continue;
    select.addEventListener("change", () => {
      select.dataset.changed = "yes";
      choose(select, specs[select.dataset.of]);
    });
  }
  const again = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const id = target.dataset.chart;
      const view = views.get(id);
      const width = target.querySelector(".plot").clientWidth;
      if (view && width && width < NARROW !== view.narrow) draw(target, specs[id]);
    }
  });
  for (const figure of figures) again.observe(figure);
}

async function drawAll() {
  const data = document.getElementById("kofn-charts");
  if (!data || !window.vegaEmbed) return;
  await drawThese(JSON.parse(data.textContent));
  document.documentElement.dataset.drawn = performance.now().toFixed();
}

// On paper everything is unfolded.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("main details:not([open])")];
  for (const details of folded) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of folded) details.open = false;
});

/** The drawn chart of a name: its signals can be changed without drawing it again. */
const view = (id) => views.get(id)?.made.view;

window.kofn = { el, visible, embedded, ready, draw, drawThese, view };
setTimeout(drawAll, 0);
