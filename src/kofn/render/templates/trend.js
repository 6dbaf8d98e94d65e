// Pointing at a cell of the map of cases says which case and run it is.
const { ready, showTip } = window.kofn;

function said(data, x, y) {
  const share = data.cells[y]?.[x];
  const verdict =
    share === null || share === undefined
      ? "not verified"
      : share === 1 ? "passes" : share === 0 ? "does not pass" : `passes in ${Math.round(100 * share)}% of these runs`;
  return [data.cases[y], data.runs[x], verdict];
}

ready.then(() => {
  for (const map of document.querySelectorAll("svg[data-cells]")) {
    const data = JSON.parse(map.dataset.cells);
    map.addEventListener("pointermove", (event) => {
      const box = map.getBoundingClientRect();
      const x = Math.floor(((event.clientX - box.left) / box.width) * data.runs.length);
      const y = Math.floor(((event.clientY - box.top) / box.height) * data.cases.length);
      const there = data.cases[y] !== undefined && data.runs[x] !== undefined;
      showTip(there ? said(data, x, y) : null, event.clientX, event.clientY);
    });
    map.addEventListener("pointerleave", () => showTip(null));
  }
});
