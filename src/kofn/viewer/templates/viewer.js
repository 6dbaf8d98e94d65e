// What every page of the viewer does: tables can be saved, forms ask as soon as something is chosen, keys move.

const { el, addSaves, download, fileName } = window.kofn;

/** A form of filters asks by itself; its empty fields stay out of the address. */
function watchForms() {
  for (const form of document.querySelectorAll("form.tools:not(.at-once)")) {
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
    const file = `${fileName(name, "table")}.csv`;
    const act = () => download(new Blob([tableCsv(table)], { type: "text/csv;charset=utf-8" }), file);
    const place = table.parentElement.classList.contains("scroll") ? table.parentElement : table;
    place.after(el("button", { type: "button", className: "save-table", ariaLabel: `save the table ${name} as CSV`, on: { click: act } }, "save as CSV"));
  }
}

const watch = new MutationObserver(() => {
  addTableSaves();
  addSaves();
});
watch.observe(document.body, { childList: true, subtree: true });

addTableSaves();
watchForms();
watchKeys();
watchRows();
document.documentElement.dataset.ready = performance.now().toFixed();
