// Pages that change by themselves: a run that is going on, and the list of runs.

const WAIT = 15000; // milliseconds until a stream is asked for again that was refused

const KEPT = ["open", "data-saves"]; // what people unfold, and what viewer.js adds
const ADDED = ".save, .save-table";

/** Make `old` what `made` is, and touch nothing that is so already: focus, ticks and unfolded parts stay. */
function morph(old, made) {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName) return void old.replaceWith(made);
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  for (const { name, value } of [...made.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name) && !KEPT.includes(name)) old.removeAttribute(name);
  const added = [...old.children].filter((child) => child.matches(ADDED));
  const had = [...old.childNodes].filter((child) => !added.includes(child));
  const wanted = [...made.childNodes];
  had.slice(wanted.length).forEach((child) => child.remove());
  wanted.forEach((child, i) => (i < had.length ? morph(had[i], child) : old.insertBefore(child, added[0] ?? null)));
}

/** Rows by name: those that stay are the same elements, wherever they stand now. */
function morphRows(body, rows) {
  const had = new Map([...body.children].map((row) => [row.dataset.name, row]));
  const focus = document.activeElement;
  rows.forEach((row, i) => {
    const old = had.get(row.dataset.name);
    had.delete(row.dataset.name);
    if (old) morph(old, row);
    const now = old ?? row;
    if (body.children[i] !== now) body.insertBefore(now, body.children[i] ?? null);
  });
  for (const row of had.values()) row.remove();
  if (document.activeElement !== focus && focus.isConnected) focus.focus({ preventScroll: true });
}

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
  if (answer.status === 204) return null; // it is gone, and the stream says where to
  return new DOMParser().parseFromString(await answer.text(), "text/html"); // made by our own templates, which escape
}

/** One refresh at a time; what is asked for meanwhile is one more afterwards. */
function oneAtATime(work) {
  let busy = false;
  let again = false;
  return async () => {
    if (busy) return void (again = true);
    busy = true;
    do {
      again = false;
      try {
        await work();
      } catch {
        // the server is gone, or the run: the stream says which
      }
    } while (again);
    busy = false;
  };
}

/** A stream while somebody looks: a browser has few connections to one server, and hidden pages would take them all. */
function listen(address, { heard, done, refused }) {
  let stream = null;
  let timer = 0;
  const stop = () => {
    clearTimeout(timer);
    stream?.close();
    stream = null;
  };
  const start = () => {
    if (stream || document.hidden) return;
    stream = new EventSource(address());
    stream.addEventListener("message", (event) => heard(JSON.parse(event.data)));
    stream.addEventListener("done", (event) => {
      stop();
      done(JSON.parse(event.data));
    });
    stream.addEventListener("error", () => {
      if (stream?.readyState !== EventSource.CLOSED) return; // the browser asks again by itself
      stop();
      refused();
      timer = setTimeout(start, WAIT);
    });
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", start);
  start();
}

function watchRun(panel) {
  const title = document.title;
  const live = () => document.getElementById("live");
  const status = window.kofn.el("p", { className: "sr", role: "status" });
  panel.after(status);
  let tenth = 0;
  const say = (words) => {
    if (status.textContent !== words) status.textContent = words;
  };
  const refresh = oneAtATime(async () => {
    const found = await fetched(panel.dataset.again);
    if (!found) return;
    const made = found.getElementById("live");
    if (made && made.dataset.phase === live().dataset.phase) morph(live(), made);
    else location.reload();
  });
  listen(() => panel.dataset.events, {
    heard(now) {
      const [done, total] = now.candidates ?? [0, 0];
      const part = total ? Math.min(1, done / total) : 0;
      document.title = now.state === "running" ? `${Math.floor(100 * part)}% · ${title}` : title;
      if (Math.floor(10 * part) !== tenth) {
        tenth = Math.floor(10 * part);
        say(`${10 * tenth}% done`);
      }
      refresh();
      document.documentElement.dataset.heard = Number(document.documentElement.dataset.heard ?? 0) + 1;
    },
    done({ to }) {
      if (to === location.pathname) location.reload();
      else location.assign(to);
    },
    refused: refresh,
  });
}

function watchList(main) {
  const refresh = oneAtATime(async () => {
    const made = await fetched(main.dataset.rows);
    const body = main.querySelector("table.runs tbody");
    const rows = [...made.querySelectorAll("tbody tr")];
    if (!body || !rows.length) return void (body || rows.length ? location.reload() : null);
    morph(main.querySelector("p.count"), made.querySelector("p.count"));
    morphRows(body, rows);
    document.documentElement.dataset.fresh = Number(document.documentElement.dataset.fresh ?? 0) + 1;
  });
  listen(() => main.dataset.list, { heard: refresh, done: () => location.reload(), refused: refresh });
}

const panel = document.getElementById("live");
if (panel) watchRun(panel);
const list = document.querySelector("main[data-list]");
if (list) watchList(list);
