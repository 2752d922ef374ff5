// The report of doctor on the manifest as its file is now, and the patterns of the tables that are chosen.
import { bytes, call, el, fill, grid, num, number, part, seconds, state } from "./dom.js";

export function setup(main, name) {
  const place = el("div"), again = el("button", { type: "button", onclick: () => look() }, "Check again");
  main.replaceChildren(el("h1", {}, `Set-up of ${name}`),
    el("p", {}, "Source, target and tables as the manifest's file names them now."
      + " Storage and a lake are tested by writing and removing a small file."),
    el("div", { className: "controls" }, again), place);
  const chosen = new Map();
  let report = null;

  async function look() {
    again.disabled = true;
    fill(place, el("p", { role: "status" }, "Asking the source …"));
    try {
      report = await call(`/replicators/${part(name)}/assessment`);
      for (const t of report.tables) if (!chosen.has(t.table)) chosen.set(t.table, t.copied);
      show();
    } finally {
      again.disabled = false;
    }
  }

  const show = () => fill(place, described(report, chosen, show));

  return {
    crumbs: [[name, `#/r/${part(name)}`], ["Set-up"]],
    refresh: async () => { if (report === null) await look().catch((error) => { fill(place); throw error; }); },
  };
}

// A report, with the choice of tables; `head`: the manifest down to its tables.
export function described(report, chosen, redraw, head = "spec:\n") {
  const copied = report.tables.filter((t) => chosen.get(t.table));
  const yaml = `${head}  tables:\n    include:\n${copied.map((t) => `    - ${JSON.stringify(t.table)}\n`).join("")}`;
  return [el("p", {}, el("strong", { className: report.ready ? "good" : "bad" }, report.ready ? "Ready."
      : "Not ready."),
      report.tables.length > 0 && ` The first snapshot takes about ${seconds(report.seconds)}.`),
    grid("What was looked at", ["Result", "Subject", "Message", "Fix"],
      report.lines.map((x) => [state(x.level), x.subject, x.message, x.fix || "–"])),
    el("h2", {}, "Tables"),
    grid(`${report.tables.length} tables that ${report.include.join(", ")} selects`,
      ["Copy", "Table", "Key", num("Rows"), num("Size"), "Columns that are not copied exactly"],
      report.tables.map((t) => [el("input", { type: "checkbox", checked: chosen.get(t.table), key: `choose/${t.table}`,
        "aria-label": `copy ${t.table}`,
        onchange: (event) => { chosen.set(t.table, event.target.checked); redraw(); } }),
      el("span", {}, t.table, !t.copied && el("span", { className: "bad" }, " cannot be copied")),
      t.key.join(", ") || "none", number(t.rows), bytes(t.bytes), columns(t)])),
    el("h2", {}, "Manifest"), el("p", {}, "The tables that are chosen, for the manifest to commit:"),
    el("pre", { tabIndex: 0, id: "manifest" }, yaml)];
}

function columns(t) {
  const inexact = t.columns.filter((c) => c.support !== "YES");
  if (inexact.length === 0) return el("span", { className: "good" }, `all ${t.columns.length} exactly`);
  return el("ul", {}, inexact.map((c) => el("li", {}, state(c.support), ` ${c.column} (${c.sourceType ?? "?"})`,
    c.becomes ? ` as ${c.becomes}` : "", `: ${c.reason} ${c.suggestion}`)));
}
