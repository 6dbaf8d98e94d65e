// The list of runs: what is asked for applies at once, and runs that are ticked can be compared.

const main = document.getElementById("main");
const tools = document.querySelector("form.at-once");
const found = () => document.getElementById("found");

// ---------------------------------------------------------------- filters

/** The address of what the fields ask for; what is empty stays out of it. */
function address() {
  const pairs = [...new FormData(tools)].filter(([, value]) => value.trim() !== "");
  const query = new URLSearchParams(pairs).toString();
  return query ? `/?${query}` : "/";
}

let asked = 0;

/** Put the runs that fit into the page; an older answer that comes late is dropped. */
async function apply() {
  const mine = ++asked;
  const to = address();
  found().setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(to);
    const made = new DOMParser().parseFromString(await answer.text(), "text/html"); // our own templates, which escape
    if (mine !== asked) return;
    const fresh = made.getElementById("found");
    if (!answer.ok || !fresh) return void location.assign(to);
    const kept = new Set(ticked().map((box) => box.value));
    found().replaceWith(fresh);
    for (const box of boxes()) box.checked = kept.has(box.value);
    main.dataset.rows = made.getElementById("main").dataset.rows;
    history.replaceState(null, "", to);
    update();
  } catch {
    if (mine === asked) found().removeAttribute("aria-busy"); // the server is gone: what was there stays
  }
}

let waiting = 0;

tools.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(waiting);
  apply();
});
tools.addEventListener("input", (event) => {
  clearTimeout(waiting);
  waiting = setTimeout(apply, event.target.matches("input") ? 200 : 0);
});

// ---------------------------------------------------------------- ticked runs

const boxes = () => [...main.querySelectorAll("input[name=run]:not(:disabled)")];
const ticked = () => boxes().filter((box) => box.checked);

/** The bar with what can be done with the ticked runs is there while some are. */
function update() {
  const bar = document.getElementById("actions");
  if (!bar) return;
  const n = ticked().length;
  bar.hidden = n === 0;
  document.getElementById("ticked").textContent = n === 1 ? "1 run selected: select another to compare" : `${n} runs selected`;
  document.getElementById("compare").disabled = n < 2;
}

main.addEventListener("change", (event) => event.target.matches("input[name=run]") && update());
main.addEventListener("click", (event) => {
  if (event.target.id !== "untick") return;
  const first = ticked()[0];
  for (const box of ticked()) box.checked = false;
  update();
  first?.focus({ preventScroll: true });
});
main.addEventListener("submit", (event) => {
  if (event.target.id !== "pick") return;
  event.preventDefault();
  const when = (box) => box.closest("tr").dataset.when;
  // the older ones are what the newer are held against
  const runs = ticked().sort((a, b) => (when(a) < when(b) ? -1 : when(a) > when(b) ? 1 : 0));
  if (runs.length > 1) location.assign(`${event.target.action}?${new URLSearchParams(runs.map((box) => ["run", box.value]))}`);
});
addEventListener("pageshow", update);
update();
