// Forms that are sent by their button: what is empty stays out of the address; runs of the same task come first.

for (const form of document.querySelectorAll("form.asked")) {
  form.addEventListener("submit", () => {
    for (const field of form.querySelectorAll("input, select")) if (!field.value && field.type !== "hidden") field.disabled = true;
  });
  addEventListener("pageshow", () => {
    for (const field of form.querySelectorAll(":disabled")) field.disabled = false;
  });
}

const first = document.querySelector("select[data-first]");
const second = document.querySelector("select[data-second]");
first?.addEventListener("change", () => {
  const task = first.selectedOptions[0]?.closest("optgroup")?.label;
  const group = [...second.querySelectorAll("optgroup")].find((one) => one.label === task);
  if (group) second.insertBefore(group, second.querySelector("optgroup"));
  for (const option of second.options) option.hidden = option.value === first.value && option.value !== "";
  if (second.value === first.value) second.selectedIndex = 0;
});
