// One table: its state, the map of its snapshots' chunks, its columns.
import { call, count, el, fault, fill, grid, num, number, part, seconds, state, time } from "./dom.js";
import { buttons } from "./actions.js";
import { charts, COUNTERS } from "./charts.js";

const WORDS = ["applied", "read", "reading", "waiting", "failed"];
const MOST_CELLS = 2000;
const COUNTED = [["inserts", "inserts"], ["updates", "updates"], ["deletes", "deletes"], ["truncates", "truncates"],
  ["schemaChanges", "schema changes"], ["snapshotRows", "snapshot rows"]];

export function table(main, name, table) {
  const place = el("div"), top = el("div"), hour = el("p"), lines = charts(COUNTERS);
  let refused = null, drawn = null;
  main.replaceChildren(el("h1", {}, table), top, el("h2", {}, "Last hour"), hour, lines.place, place);
  return {
    crumbs: [[name, `#/r/${part(name)}`], [table]],
    repaint: () => lines.repaint(),
    close: () => lines.close(),
    async refresh() {
      const base = `/replicators/${part(name)}`;
      const view = await call(`${base}/tables/${part(table)}`);
      refused ??= (await call(base)).refused;
      const t = view.status, c = t.counters;
      fill(top, el("p", {}, state(t.state), ` lag ${seconds(t.lagSeconds)}, ${number(t.rowsPerSecond)} rows/s`),
        t.fault && fault(t.fault, "h2"),
        t.holes > 0 && el("p", { className: "warn" },
          `${number(t.holes)} rows are withheld until they are read again.`),
        t.nulled.length > 0 && el("ul", {}, t.nulled.map((n) =>
          el("li", { className: "warn" }, `Column ${n.column}: ${number(n.values)} values became NULL.`))),
        el("div", { className: "controls" }, buttons(name, ["snapshot", "verify", "repair", "resync"].map((verb) => ({
          label: verb[0].toUpperCase() + verb.slice(1), body: { verb, tables: [table] } })), refused)),
        el("h2", {}, "Counters"),
        grid("Rows since the driver's start", [num("Inserts"), num("Updates"), num("Deletes"), num("Truncates"),
          num("Schema changes"), num("Snapshot rows"), num("Applied record")],
        [[number(c.inserts), number(c.updates), number(c.deletes), number(c.truncates), number(c.schemaChanges),
          number(c.snapshotRows), number(t.appliedRecord)]]));
      const h = view.history;
      fill(hour, h === null ? "This driver is older and keeps no counters of the last hour."
        : COUNTED.map(([field, word]) => `${number(h[field].reduce((sum, n) => sum + n, 0))} ${word}`).join(", "));
      if (h !== null && h.at.at(-1) !== drawn) { // a new minute; drawing is dear
        drawn = h.at.at(-1);
        await lines.show(h);
      }
      fill(place, t.verified && el("p", {},
          `Verified ${time(t.verified.at)}: ${number(t.verified.compared.rows)} rows compared, ` +
          `${number(t.verified.compared.missing)} missing, ${number(t.verified.compared.extra)} extra, ` +
          `${number(t.verified.compared.different)} different` + (t.verified.compared.undecided
            ? `, ${number(t.verified.compared.undecided)} undecided.` : ".")),
        el("h2", {}, "Snapshots"),
        view.snapshots.length === 0 ? el("p", { className: "dim" }, "None.") : [...view.snapshots].reverse().map(map),
        el("h2", {}, "Columns"),
        grid(`${count(view.columns.length, "column")}, schema version ${view.schemaVersion}` +
          `${view.keyless ? ", no key: rows are counted" : ""}${view.where ? `, only rows with ${view.where}` : ""}`,
        ["Column", "Type in the source", "Type in the target", "Key", "NULL", "Mask"],
        view.columns.map((k) => [k.name, k.sourceType, k.type, k.key === null ? "–" : `${k.key + 1}.`,
          k.nullable ? "allowed" : "no", k.mask ?? "–"])));
    },
  };
}

function map(s) {
  const total = s.chunks.reduce((sum, run) => sum + run.chunks, 0);
  const counts = Object.fromEntries(WORDS.map((word) => [word, 0]));
  for (const run of s.chunks) counts[run.state] += run.chunks;
  const each = Math.max(1, Math.ceil(total / MOST_CELLS));
  const cells = s.chunks.flatMap((run) => Array.from({ length: Math.ceil(run.chunks / each) }, () =>
    el("span", { className: `cell ${run.state}` })));
  const said = WORDS.filter((word) => counts[word]).map((word) => `${number(counts[word])} ${word}`).join(", ")
    || "no chunk yet";
  const more = s.more === null ? ", the number of further chunks is not known yet" : s.more
    ? `, about ${number(s.more)} more` : "";
  return el("section", { className: "panel" }, el("h3", {}, s.snapshot, " ", state(s.state)),
    el("p", {}, `${number(s.rowsDone)} of about ${number(s.rowsEstimated)} rows${s.verify ? " compared" : ""}`),
    el("div", { className: "map", role: "img", "aria-label": `Chunks by key: ${said}${more}` }, cells),
    el("p", { className: "legend" }, WORDS.map((word) => el("span", {}, el("span", { className: `cell ${word}` }),
      `${word} ${number(counts[word])}`)), each > 1 && el("span", {}, `a cell stands for ${each} chunks`)),
    s.more !== 0 && el("p", { className: "dim" }, more.slice(2)),
    s.reading.length > 0 && el("p", {}, `Being read: ${s.reading.join(", ")}`), s.fault && fault(s.fault, "h4"));
}
