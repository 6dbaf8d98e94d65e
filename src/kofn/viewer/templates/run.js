// What is drawn from all candidates comes after the page.

const place = document.querySelector("#set-charts[data-from], #spending-charts[data-from]");

function put(id, markup, empty) {
  const target = document.getElementById(id);
  if (!target) return;
  const parsed = new DOMParser().parseFromString(markup, "text/html"); // made by our own templates, which escape
  target.replaceChildren(...parsed.body.childNodes);
  if (empty && !target.childElementCount) target.closest("section")?.remove();
}

async function load() {
  const answer = await fetch(place.dataset.from);
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
  const found = await answer.json();
  put("set-charts", found.sets, true);
  put("spending-charts", found.spending, false);
  document.getElementById("sets")?.removeAttribute("aria-busy");
  document.documentElement.dataset.loaded = "";
}

if (place) {
  load().catch((problem) => {
    const target = document.getElementById("set-charts");
    target?.replaceChildren(`The charts cannot be drawn: ${problem.message}`);
  });
}
