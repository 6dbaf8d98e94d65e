// What every page needs: text that cannot become markup, embedded data, tooltips and files of charts.

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

/** A sentence that may quote names and commands in backticks: these as code. */
function prose(text) {
  const out = document.createDocumentFragment();
  text.split(/`([^`\n]+)`/).forEach((part, i) => out.append(i % 2 ? el("code", {}, visible(part)) : visible(part)));
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

// ---------------------------------------------------------------- long texts

/** A text shows where it goes on beyond its box. */
function fadeText(block) {
  const left = block.scrollHeight - block.clientHeight;
  const long = left > 4;
  block.classList.toggle("fades", long);
  block.classList.toggle("fades-above", long && block.scrollTop > 4);
  block.classList.toggle("fades-below", long && block.scrollTop < left - 4);
}

/** Every long text at the answer in it, fading where it goes on; only the boxes scroll, never the page. */
function fadeTexts(root) {
  for (const block of root.querySelectorAll(".block")) {
    const mark = [...block.querySelectorAll("mark")].at(-1);
    if (mark && block.scrollHeight > block.clientHeight) {
      const top = mark.getBoundingClientRect().top - block.getBoundingClientRect().top + block.scrollTop;
      if (top + 30 > block.clientHeight) block.scrollTop = top - block.clientHeight * 0.6;
    }
    fadeText(block);
    block.addEventListener("scroll", () => fadeText(block), { passive: true });
  }
  for (const details of root.querySelectorAll("details")) {
    details.addEventListener("toggle", () => details.querySelectorAll(".block").forEach(fadeText));
  }
}

/** All texts of a part of the page whole, or cut again; the button says which. */
function expandTexts(root, button) {
  const whole = root.classList.toggle("whole-texts");
  button.setAttribute("aria-pressed", String(whole));
  button.textContent = whole ? "Collapse all" : "Expand all";
  for (const block of root.querySelectorAll(".block")) fadeText(block);
}

// ---------------------------------------------------------------- charts

const MARK = ".plot [role=graphics-symbol]";

/** What a mark says, taken from its title: without a script the browser shows that itself. */
function markText(mark) {
  const title = mark.querySelector("title");
  if (title) {
    mark.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  return mark.getAttribute("aria-label") ?? "";
}

/** A box beside a point with a headline and "name: value" lines; none takes it away. */
function showTip(lines, x, y) {
  let tip = document.getElementById("tip");
  if (!lines) return void tip?.remove();
  if (!tip) document.body.append((tip = el("div", { id: "tip", ariaHidden: "true" })));
  const [name, ...rest] = lines;
  const row = (line) => {
    const at = line.indexOf(": ");
    return at < 0
      ? el("div", {}, el("span", {}, visible(line)))
      : el("div", {}, el("span", {}, visible(line.slice(0, at))), el("span", {}, visible(line.slice(at + 2))));
  };
  tip.replaceChildren(el("div", { className: "name" }, visible(name)), ...rest.map(row));
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(8, y + 14 + height > innerHeight ? y - height - 10 : y + 14)}px`;
}

let pointed = null; // the mark under the pointer

document.addEventListener("pointermove", (event) => {
  const mark = event.target.closest?.(MARK);
  if (mark) showTip(markText(mark).split("\n"), event.clientX, event.clientY);
  else if (pointed) showTip(null);
  pointed = mark;
});
document.addEventListener("focusin", (event) => {
  if (!event.target.matches(`${MARK}, .plot a:has([role=graphics-symbol])`)) return;
  const mark = event.target.closest(MARK) ?? event.target.querySelector("[role=graphics-symbol]");
  const box = mark.getBoundingClientRect();
  if (event.target.matches(":focus-visible")) showTip(markText(mark).split("\n"), box.right, box.bottom);
});
document.addEventListener("focusout", (event) => event.target.matches?.(".plot *") && showTip(null));

const shownMarks = (svg) => [...svg.querySelectorAll("[role=graphics-symbol][tabindex]")].filter((mark) => !mark.closest("[hidden]"));
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };

/** A chart is one stop of the Tab key; arrow keys go from mark to mark. */
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") return showTip(null);
  const mark = event.target.closest?.(`${MARK}[tabindex]`);
  if (!mark || !(event.key in STEPS) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  event.stopPropagation();
  const marks = shownMarks(mark.closest(".plot > svg"));
  const next = marks[Math.max(0, Math.min(marks.length - 1, marks.indexOf(mark) + STEPS[event.key]))];
  mark.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
});

/** Another choice of a chart that has several. */
document.addEventListener("change", (event) => {
  const select = event.target.closest("select[data-choice]");
  if (!select) return;
  const svg = select.closest("figure").querySelector(".plot > svg");
  for (const part of svg.querySelectorAll("[data-shown]")) part.toggleAttribute("hidden", part.dataset.shown !== select.value);
  for (const mark of svg.querySelectorAll("[tabindex='0']")) mark.setAttribute("tabindex", "-1");
  shownMarks(svg)[0]?.setAttribute("tabindex", "0");
  svg.setAttribute("aria-label", `${select.value}: the numbers are in the table below`);
});

/** The axis of a chart around its data, or its whole scale: ticks and what is drawn change places, nothing is drawn again. */
document.addEventListener("click", (event) => {
  const button = event.target.closest?.(".zoom button");
  if (!button) return;
  const svg = button.closest(".plot").querySelector("svg");
  const part = svg.querySelector("[data-zoom]");
  const whole = !part.hasAttribute("data-is-whole");
  part.toggleAttribute("data-is-whole", whole);
  const names = part.dataset.zoom === "x" ? ["x", "width"] : ["y", "height"];
  part.dataset.whole.split(" ").forEach((value, i) => (whole ? part.setAttribute(names[i], value) : part.removeAttribute(names[i])));
  for (const axis of svg.querySelectorAll("[data-axis]")) axis.toggleAttribute("hidden", (axis.dataset.axis === "whole") !== whole);
  button.textContent = whole ? "Zoom to the data" : `Show the axis ${button.dataset.words}`;
});

// ---------------------------------------------------------------- charts as files

/** The chart on its own, with the colours it has now: outside the page nobody knows its variables. */
function standalone(figure) {
  const svg = figure.querySelector(".plot > svg");
  const { width, height } = svg.getBoundingClientRect();
  const look = getComputedStyle(svg);
  const [top, right, bottom, left] = ["Top", "Right", "Bottom", "Left"].map((side) => parseFloat(look[`padding${side}`]));
  const inner = svg.cloneNode(true);
  const [drawn, copies] = [svg, inner].map((root) => [...root.querySelectorAll("*")]);
  copies.forEach((copy, i) => getComputedStyle(drawn[i]).display === "none" && copy.remove());
  const colour = (value) => value.replace(/var\((--[\w-]+)\)/g, (_, name) => look.getPropertyValue(name).trim());
  for (const node of inner.querySelectorAll("*")) {
    for (const { name, value } of [...node.attributes]) if (value.includes("var(")) node.setAttribute(name, colour(value));
  }
  const made = (name, properties, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(properties)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const fonts = { "font-family": "system-ui, sans-serif", "font-size": svg.getAttribute("font-size") };
  const place = { x: left, y: top, width: width - left - right, height: height - top - bottom, overflow: "visible" };
  const whole = made(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", ...fonts },
    made("title", {}, svg.getAttribute("aria-label")),
    made("rect", { width: "100%", height: "100%", fill: look.getPropertyValue("--paper").trim() }),
    made("svg", place, ...inner.childNodes),
  );
  return { text: new XMLSerializer().serializeToString(whole), width, height };
}

const fileName = (text, usual) => text.trim().replace(/[^\w.-]+/g, "_").slice(0, 80) || usual;

function download(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}

async function png(text, width, height) {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = el("canvas", { width: 2 * width, height: 2 * height });
  const draw = canvas.getContext("2d");
  draw.scale(2, 2);
  draw.drawImage(image, 0, 0, width, height);
  URL.revokeObjectURL(image.src);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

async function save(figure, name, kind) {
  if (kind === "json") {
    const spec = JSON.stringify(JSON.parse(figure.querySelector("script.spec").textContent), null, 2);
    return download(new Blob([spec], { type: "application/json" }), `${name}.vl.json`);
  }
  const { text, width, height } = standalone(figure);
  const blob = kind === "svg" ? new Blob([text], { type: "image/svg+xml" }) : await png(text, width, height);
  download(blob, `${name}.${kind}`);
}

/** Every chart can be saved: as it looks now, and as a specification for other programs. */
function addSaves() {
  for (const plot of document.querySelectorAll("figure.chart > .plot:has(> svg)")) {
    const figure = plot.parentElement;
    if (figure.querySelector(".save")) continue;
    const title = figure.querySelector("h2, h3") ?? figure.closest("section")?.querySelector("h2");
    const name = fileName(title?.textContent ?? "", "chart");
    const kinds = { SVG: "svg", PNG: "png", "Vega-Lite": "json" };
    const buttons = Object.entries(kinds).map(([words, kind]) =>
      el("button", { type: "button", on: { click: () => save(figure, name, kind) } }, words),
    );
    figure.append(el("p", { className: "save" }, el("span", {}, "save as"), ...buttons));
  }
}

ready.then(() => {
  addSaves();
  document.documentElement.dataset.drawn = "";
});

// On paper everything is unfolded.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("main details:not([open])")];
  for (const details of folded) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of folded) details.open = false;
});

window.kofn = { el, expandTexts, fadeTexts, prose, visible, embedded, ready, showTip, addSaves, download, fileName };
