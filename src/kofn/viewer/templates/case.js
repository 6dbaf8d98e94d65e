// The candidates of a case: each text shows its answer, fades where it goes on, and all can be laid out whole.

const { fadeTexts, expandTexts } = window.kofn;

const expand = document.getElementById("expand");
const main = document.getElementById("main");

fadeTexts(main);
if (expand && document.querySelector(".block.fades")) {
  expand.hidden = false;
  expand.addEventListener("click", () => expandTexts(main, expand));
}
document.documentElement.dataset.faded = "";
