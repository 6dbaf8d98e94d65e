// The theme that was chosen, before anything is drawn: "light", "dark", or none for that of the system.

const THEME = "kofn-theme";

function storedTheme() {
  try {
    const found = localStorage.getItem(THEME);
    return found === "light" || found === "dark" ? found : "";
  } catch {
    return ""; // storage is refused: the theme of the system
  }
}

function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  for (const select of document.querySelectorAll("select[data-theme-choice]")) select.value = theme;
}

applyTheme(storedTheme());
document.addEventListener("DOMContentLoaded", () => applyTheme(storedTheme()));
addEventListener("pageshow", () => applyTheme(storedTheme()));
addEventListener("storage", (event) => event.key === THEME && applyTheme(storedTheme()));
document.addEventListener("change", (event) => {
  if (!event.target.matches("select[data-theme-choice]")) return;
  const theme = event.target.value;
  try {
    if (theme) localStorage.setItem(THEME, theme);
    else localStorage.removeItem(THEME);
  } catch {
    // it holds for this page
  }
  applyTheme(theme);
});
