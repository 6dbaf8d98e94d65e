// The list of what changed: filters, and candidates of both sides that are laid out when a case is unfolded.
const { el, visible, embedded, ready } = window.kofn;

const SHOWN = 25; // candidates of a side that are laid out at once
const SIGNS = { 1: ["pass", "pass"], 0: ["fail", "fail"], null: ["none", "not graded"] };
const count = (n) => n.toLocaleString("en");
const isolated = (text) => el("bdi", {}, visible(text));
const whole = (value) => (Array.isArray(value) ? `${value[0]} … ${value[2]}` : value);

/** Where the n-th character stands: Python counts code points, JavaScript UTF-16 units. */
const unit = (text, n) => [...text].slice(0, n).join("").length;

function block(value, span = null) {
  const box = el("div", { className: "text block", dir: "auto", tabIndex: 0, role: "group", ariaLabel: "text" });
  const show = (text) => (text ? box.append(visible(text, { lines: true })) : null);
  if (Array.isArray(value)) {
    show(value[0]);
    box.append(el("span", { className: "gap" }, `${count(value[1])} characters left out here`));
    show(value[2]);
  } else if (span) {
    const [from, to] = span.map((n) => unit(value, n));
    show(value.slice(0, from));
    box.append(el("mark", { title: "the extracted answer" }, visible(value.slice(from, to), { lines: true })));
    show(value.slice(to));
  } else show(value);
  if (value === "") box.append(el("span", { className: "quiet" }, "(empty)"));
  return box;
}

function candidate(one) {
  const [kind, words] = SIGNS[one.pass];
  return el(
    "article",
    { className: "candidate" },
    el(
      "header",
      {},
      el("h4", {}, `Candidate ${one.k}`),
      el("span", { className: `sign ${kind}` }, words),
      one.answer !== null
        ? el("span", { className: "answer", title: "the extracted answer" }, isolated(whole(one.answer)))
        : el("span", { className: "meta" }, "no answer"),
    ),
    one.text === null ? null : block(one.text, one.span),
  );
}

function side(name, candidates, link, left) {
  const head = el("h3", {}, link ? el("a", { href: link }, isolated(name)) : isolated(name));
  const list = el("div", { className: "side" }, head);
  const show = (from) => {
    list.append(...candidates.slice(from, from + SHOWN).map(candidate));
    const left = candidates.length - from - SHOWN;
    if (left <= 0) return;
    const button = el("button", { type: "button" }, `Show ${count(Math.min(left, SHOWN))} more`);
    button.addEventListener("click", () => {
      button.remove();
      show(from + SHOWN);
    });
    list.append(button);
  };
  show(0);
  if (!candidates.length) list.append(el("p", { className: "quiet" }, "no candidates"));
  if (left) list.append(el("p", {}, el("a", { href: link }, `${count(left)} more`)));
  return list;
}

function caseField(name, value) {
  if (value === null) return null;
  return el("div", { className: "case-field" }, el("p", { className: "side-name" }, name), block(value));
}

function body(data) {
  return el(
    "div",
    { className: "change-body" },
    caseField("Input", data.input),
    caseField("Reference", data.reference),
    el(
      "div",
      { className: "sides" },
      data.sides.map((candidates, i) => side(data.names[i], candidates, data.links?.[i], data.left?.[i])),
    ),
  );
}

function filter(list) {
  const value = (id) => document.getElementById(id)?.value ?? "";
  const [query, way, pair] = [value("query").trim().toLowerCase(), value("way"), value("pair")];
  let shown = 0;
  for (const one of list) {
    const fits =
      (!way || one.dataset.way === way) &&
      (!pair || one.dataset.pair === pair) &&
      (!query || one.firstElementChild.textContent.toLowerCase().includes(query));
    one.hidden = !fits;
    shown += fits;
  }
  document.getElementById("count").textContent = `${count(shown)} of ${count(list.length)} shown`;
}

/** What unfolds below a case: in the page, or where the page says. */
async function found(one, all) {
  if (!one.dataset.from) return all[Number(one.dataset.at)];
  const answer = await fetch(one.dataset.from);
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
  return answer.json();
}

async function unfold(one, all) {
  one.setAttribute("aria-busy", "true");
  try {
    one.append(body(await found(one, all)));
  } catch (problem) {
    one.append(el("p", { className: "error", role: "status" }, `This cannot be shown: ${problem.message}`));
  }
  one.removeAttribute("aria-busy");
}

ready.then(async () => {
  const list = [...document.querySelectorAll("details.change")];
  if (!list.length) return;
  const all = document.getElementById("changed") ? JSON.parse(await embedded("changed")) : [];
  for (const one of list) {
    one.addEventListener("toggle", () => unfold(one, all), { once: true });
    if (one.open) unfold(one, all);
  }
  const tools = document.getElementById("tools");
  if (tools) tools.hidden = false;
  for (const id of tools ? ["query", "way", "pair"] : []) {
    document.getElementById(id)?.addEventListener("input", () => filter(list));
  }
  document.documentElement.dataset.ready = performance.now().toFixed();
});
