// Pointing at a cell of the map of cases says which case and run it is.
const { el, visible, ready } = window.kofn;

function said(data, x, y) {
  const share = data.cells[y]?.[x];
  const verdict =
    share === null || share === undefined
      ? "not verified"
      : share === 1 ? "passes" : share === 0 ? "does not pass" : `passes in ${Math.round(100 * share)} % of these runs`;
  return [data.cases[y], data.runs[x], verdict];
}

function tip(event, lines) {
  let box = document.getElementById("tip");
  if (!lines) return void box?.remove();
  if (!box) document.body.append((box = el("div", { id: "tip", ariaHidden: "true" })));
  const [name, ...rest] = lines;
  box.replaceChildren(
    el("div", { className: "name" }, visible(name)),
    ...rest.map((line) => el("div", {}, el("span", {}, visible(line)))),
  );
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  box.style.top = `${event.clientY + 14 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 14}px`;
}

ready.then(() => {
  for (const map of document.querySelectorAll("svg[data-cells]")) {
    const data = JSON.parse(map.dataset.cells);
    map.addEventListener("pointermove", (event) => {
      const box = map.getBoundingClientRect();
      const x = Math.floor(((event.clientX - box.left) / box.width) * data.runs.length);
      const y = Math.floor(((event.clientY - box.top) / box.height) * data.cases.length);
      tip(event, data.cases[y] === undefined || data.runs[x] === undefined ? null : said(data, x, y));
    });
    map.addEventListener("pointerleave", (event) => tip(event, null));
  }
});
