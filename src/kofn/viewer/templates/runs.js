// Two runs that are ticked can be compared.

const form = document.getElementById("pick");
if (form) {
  const button = document.getElementById("compare");
  const ticked = () => [...form.querySelectorAll("input[name=run]:checked")];
  const update = () => {
    const n = ticked().length;
    button.disabled = n !== 2;
    button.textContent = n === 2 ? "Compare these two" : n ? `Compare two (${n} ticked)` : "Compare two";
  };
  form.addEventListener("change", update);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const when = (box) => box.closest("tr").dataset.when;
    // the older one is what the newer is held against
    const runs = ticked().sort((a, b) => (when(a) < when(b) ? -1 : when(a) > when(b) ? 1 : 0));
    location.assign(`${form.action}?${new URLSearchParams(runs.map((box) => ["run", box.value]))}`);
  });
  addEventListener("pageshow", update);
  update();
}
