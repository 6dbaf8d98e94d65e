// The n to choose, by the rule of kofn.analysis.best_of.choose_n: of one table this says what Python says, in the same words.

const SAME = 1e-12;
const REACHES = { any: "any of them passes", selected: "the pick passes", majority: "the vote is right" };

// ---------------------------------------------------------------- numbers as Python writes them

/** So many digits behind the point; what lies exactly between two ends even, where toFixed would go up. */
function fixed(x, digits) {
  if (Math.abs(x * 2 ** (digits + 1)) % 2 !== 1) return x.toFixed(digits);
  const below = Math.floor(Math.abs(x) * 10 ** digits);
  return ((Math.sign(x) * (below + (below % 2))) / 10 ** digits).toFixed(digits);
}

const grouped = (text) => text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
const trimmed = (text) => (text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text);

/** Three digits, never as a power of ten. */
function plain(x) {
  if (x === 0) return "0";
  return trimmed(fixed(x, Math.min(100, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(x)))))));
}

/** Python's .3g below 1,000. */
function short(x) {
  const [digits, power] = x.toExponential(2).split("e");
  if (x !== 0 && +power < -4) return `${trimmed(digits)}e-${String(-power).padStart(2, "0")}`;
  return trimmed(fixed(x, Math.max(0, 2 - +power)));
}

const number = (x) => (x === null ? "–" : fixed(x, 3));
const between = (low, high) => (low === null || high === null ? "" : `[${fixed(low, 3)}, ${fixed(high, 3)}]`);
const seconds = (time) => (time === null ? "an unknown time" : time < 100 ? `${short(time)} s` : `${grouped(fixed(time, 0))} s`);
const dollars = (sum) => (sum === null ? "an unknown sum" : sum >= 1000 ? `$${grouped(fixed(sum, 0))}` : `$${plain(sum)}`);
const dear = (rate) => (Math.abs(rate) >= 1000 ? grouped(fixed(rate, 0)) : plain(rate));

// ---------------------------------------------------------------- the table, and the choice

/**
 * The table with what a candidate costs. Where neither the run nor anybody says it a candidate counts as 1, and `counted`
 * says that gains are of a candidate, not of a dollar.
 */
function priced(table, given) {
  const cost = given ?? (table.cost || null);
  const rows = table.rows.map((row) => ({
    ...row,
    cost: row.k * (cost ?? 1),
    gain_per_cost: row.gain === null ? null : row.gain / (cost ?? 1),
  }));
  return { ...table, rows, cost: cost ?? 1, counted: cost === null };
}

/** How many candidates, and why; `problem` where what is asked for cannot be told. `table` is of `priced`. */
function choose(table, wanted) {
  const rows = table.rows.filter((row) => row[table.measure] !== null);
  if (wanted.gain === null && wanted.latency === null && wanted.budget === null) return { n: null, reason: nothingAsked(table, rows) };
  const problem = unknown(table, rows, wanted);
  if (problem) return { n: null, reason: problem, problem };
  const fits = rows.filter((row) => isWithin(row, wanted));
  if (!fits.length) return { n: null, reason: nothingFits(rows[0], wanted) };
  const values = reached(rows, table.measure);
  const worth = new Map(fits.map((row) => [row.k, values.get(row.k) - (wanted.gain ?? 0) * row.cost]));
  const best = Math.max(...worth.values());
  const close = fits.filter((row) => worth.get(row.k) >= best - SAME);
  const chosen = wanted.gain !== null ? close.at(-1) : close[0];
  return { n: chosen.k, reason: reason(table, rows, fits, chosen, wanted) };
}

/** The value at each k, gains added up: each is over the same cases, which values of unequal sets are not. */
function reached(rows, measure) {
  const out = new Map();
  let at = rows[0][measure];
  rows.forEach((row, i) => {
    at += (row.gain ?? 0) * (row.k - (rows[i - 1] ?? row).k);
    out.set(row.k, at);
  });
  return out;
}

const timeOf = (row, wanted) => (wanted.sequential ? row.seconds_sequential : row.seconds);

function unknown(table, rows, wanted) {
  if (table.counted && wanted.budget !== null) return "what a candidate costs is not known: say it, or use outputs with a cost";
  if (wanted.latency !== null && timeOf(rows[0], wanted) === null) return "how long a candidate takes is not known: use outputs with seconds";
  return null;
}

function isWithin(row, wanted) {
  const time = timeOf(row, wanted);
  const quick = wanted.latency === null || (time !== null && time <= wanted.latency);
  return quick && (wanted.budget === null || row.cost <= wanted.budget * (1 + SAME));
}

const rateOf = (table) => (table.counted ? "a candidate" : "a dollar");

function nothingAsked(table, rows) {
  const last = rows.at(-1);
  const how = `say what bounds it: a gain ${rateOf(table)}, a latency or a budget`;
  if (last.gain === null) return how;
  const per = table.counted ? "" : ` (${dear(last.gain_per_cost)} a dollar)`;
  return `${how}; the last candidate, number ${last.k}, adds ${fixed(last.gain, 3)}${per}`;
}

function nothingFits(first, wanted) {
  const found = [];
  const time = timeOf(first, wanted);
  if (wanted.latency !== null && (time === null || time > wanted.latency)) found.push(`takes ${seconds(time)}, more than ${seconds(wanted.latency)}`);
  if (wanted.budget !== null && first.cost > wanted.budget) found.push(`costs ${dollars(first.cost)}, more than ${dollars(wanted.budget)}`);
  return `even one candidate ${found.join(" and ")}`;
}

/** The value, the bounds it keeps, and why not more. */
function reason(table, rows, fits, chosen, wanted) {
  const many = chosen.k > 1 ? `${chosen.k} candidates` : "one candidate";
  let said = `with ${many} ${REACHES[table.measure]} in ${fixed(chosen[table.measure], 3)} of the cases`;
  if (wanted.latency !== null) {
    const how = wanted.sequential ? "one after the other" : "side by side";
    said += `, ${chosen.k === 1 ? "takes" : `${how} they take`} ${seconds(timeOf(chosen, wanted))} of the ${seconds(wanted.latency)} allowed`;
  }
  if (wanted.budget !== null) said += `, at ${dollars(chosen.cost)} of the ${dollars(wanted.budget)} allowed`;
  return `${said}; ${whyNotMore(table, rows, fits, chosen, wanted)}`;
}

/** What the next step would bring, or that there is none. */
function whyNotMore(table, rows, fits, chosen, wanted) {
  const next = rows.find((row) => row.k > chosen.k);
  if (!next) return `${chosen.k} is the most that was measured, so more may be worth it too`;
  if (!fits.includes(next)) return `${next.k} would ${tooMuch(next, wanted)}`;
  const gain = next.gain ?? 0;
  if (table.counted && wanted.gain !== null) return `number ${next.k} would add ${gain > 0 ? dear(gain) : "nothing"}, and ${dear(wanted.gain)} a candidate is asked for`;
  const added = gain > 0 ? `number ${next.k} would add ${fixed(gain, 3)}` : `number ${next.k} would add nothing`;
  if (wanted.gain === null) return `${added}, and no more of those that fit does better`;
  return `${added}, ${dear(next.gain_per_cost ?? 0)} a dollar, and ${dear(wanted.gain)} is asked for`;
}

function tooMuch(row, wanted) {
  const time = timeOf(row, wanted);
  return wanted.latency !== null && (time === null || time > wanted.latency) ? `take ${seconds(time)}` : `cost ${dollars(row.cost)}`;
}

window.kofn.best = { priced, choose, number, between, seconds, dollars, dear, fixed, grouped };
