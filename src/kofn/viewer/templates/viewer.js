// What every page of the viewer does: charts can be saved, forms ask as soon as something is chosen, keys move.

const { el } = window.kofn;

/** A form of filters asks by itself; its empty fields stay out of the address. */
function watchForms() {
  for (const form of document.querySelectorAll("form.tools")) {
    form.addEventListener("change", (event) => {
      if (event.target.matches("select, input[type=checkbox]")) form.requestSubmit();
    });
    form.addEventListener("submit", () => {
      for (const field of form.querySelectorAll("input, select")) if (!field.value) field.disabled = true;
    });
  }
  addEventListener("pageshow", () => {
    for (const field of document.querySelectorAll("form.tools :disabled")) field.disabled = false;
  });
}

function watchKeys() {
  const page = document.querySelector("main[data-before]");
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, [contenteditable]")) return;
    const go = (to) => {
      if (!to) return;
      event.preventDefault();
      location.assign(to);
    };
    if (event.key === "/") {
      const field = document.querySelector("input[type=search]");
      if (field) {
        event.preventDefault();
        field.focus();
      }
    } else if (page && event.key === "j") go(page.dataset.after);
    else if (page && event.key === "k") go(page.dataset.before);
    else if (page && event.key === "Escape") go(page.dataset.back);
    else if (!page && (event.key === "j" || event.key === "k")) moveInTable(event, event.key === "j" ? 1 : -1);
  });
}

/** j and k go up and down the links of a table. */
function moveInTable(event, by) {
  const links = [...document.querySelectorAll("#table tbody th a")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

/** A click anywhere on a row opens it. */
function watchRows() {
  document.addEventListener("click", (event) => {
    const row = event.target.closest("table.cases tbody tr");
    if (!row || event.target.closest("a, input, button") || String(getSelection())) return;
    row.querySelector("th a")?.click();
  });
}

// ---------------------------------------------------------------- charts as files

function addSaves(figure) {
  if (figure.querySelector(".save")) return;
  const name = (figure.querySelector("h3, h2")?.textContent || figure.dataset.chart).trim();
  const button = (kind) => el("button", { type: "button", on: { click: () => save(figure, name, kind) } }, kind.toUpperCase());
  figure.append(el("p", { className: "save" }, el("span", {}, "save as"), button("svg"), button("png")));
}

/** The chart with the colours it has now: outside the page nobody knows its variables. */
function standalone(figure) {
  const svg = figure.querySelector(".plot svg");
  const copy = svg.cloneNode(true);
  const look = getComputedStyle(document.documentElement);
  const colour = (value) => value.replace(/var\((--[\w-]+)\)/g, (_, name) => look.getPropertyValue(name).trim());
  for (const node of [copy, ...copy.querySelectorAll("*")]) {
    for (const { name, value } of [...node.attributes]) if (value.includes("var(")) node.setAttribute(name, colour(value));
  }
  const { width, height } = svg.getBoundingClientRect();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [key, value] of [["width", "100%"], ["height", "100%"], ["fill", look.getPropertyValue("--paper").trim()]]) back.setAttribute(key, value);
  copy.prepend(back);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

async function save(figure, name, kind) {
  const { text, width, height } = standalone(figure);
  const file = name.replace(/[^\w.-]+/g, "_").slice(0, 80) || "chart";
  const svg = new Blob([text], { type: "image/svg+xml" });
  if (kind === "svg") return download(svg, `${file}.svg`);
  const image = new Image();
  image.src = URL.createObjectURL(svg);
  await image.decode();
  const canvas = el("canvas", { width: 2 * width, height: 2 * height });
  const draw = canvas.getContext("2d");
  draw.scale(2, 2);
  draw.drawImage(image, 0, 0, width, height);
  URL.revokeObjectURL(image.src);
  canvas.toBlob((png) => download(png, `${file}.png`), "image/png");
}

function download(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}

// ---------------------------------------------------------------- tables as files

/** A cell that a spreadsheet takes for no formula, as `kofn calibrate` writes them; a plain number is none. */
function cell(text) {
  const risky = /^[=+\-@\t\r']/.test(text) && !/^[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?$/i.test(text);
  const safe = risky ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** What can be read in a cell, its parts apart. */
function words(node) {
  const walk = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walk.nextNode()) found.push(walk.currentNode.textContent.trim());
  return found.filter(Boolean).join(" ").replace(/\s+/g, " ");
}

function tableCsv(table) {
  return [...table.rows].map((row) => [...row.cells].map((one) => cell(words(one))).join(",")).join("\r\n") + "\r\n";
}

/** Every table can be saved, but for those that have exports of their own. */
function addTableSaves() {
  for (const table of document.querySelectorAll("main table:not(.cases, .runs, [data-plain], [data-saves])")) {
    table.dataset.saves = "";
    const near = table.closest("section, figure, .chart")?.querySelector("h2, h3")?.textContent;
    const name = (table.caption?.textContent || near || document.title).trim();
    const file = `${name.replace(/[^\w.-]+/g, "_").slice(0, 80) || "table"}.csv`;
    const act = () => download(new Blob([tableCsv(table)], { type: "text/csv;charset=utf-8" }), file);
    const place = table.parentElement.classList.contains("scroll") ? table.parentElement : table;
    place.after(el("button", { type: "button", className: "save-table", ariaLabel: `save the table ${name} as CSV`, on: { click: act } }, "save as CSV"));
  }
}

const watch = new MutationObserver(() => {
  addTableSaves();
  for (const svg of document.querySelectorAll("figure.chart .plot svg")) addSaves(svg.closest("figure"));
});
watch.observe(document.body, { childList: true, subtree: true });

addTableSaves();
watchForms();
watchKeys();
watchRows();
document.documentElement.dataset.ready = performance.now().toFixed();
