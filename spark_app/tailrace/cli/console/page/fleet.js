// All Replicators, those with problems first.
import { bytes, call, el, fill, grid, num, number, part, rate, seconds, sparkline, state, token } from "./dom.js";

const HEADS = ["Replicator", "State", num("Lag"), "Last hour", "Freshness objective", num("Tables failing"),
  num("Rows/s"), num("Source log kept"), "Message"];

export function fleet(main) {
  const search = el("input", { type: "search", id: "search", oninput: () => show() });
  const place = el("div"), more = el("p");
  let known = null;
  main.replaceChildren(el("h1", {}, "Fleet"),
    el("div", { className: "controls" }, el("label", {}, "Search", search)), place, more);

  function show() {
    if (known === null) return;
    const text = search.value.toLowerCase();
    const found = known.replicators.filter((r) => r.name.toLowerCase().includes(text));
    const trouble = known.replicators.filter((r) => r.trouble > 0).length;
    fill(place, grid(`${known.replicators.length} Replicators, ${trouble} with problems`, HEADS, found.map(row)));
  }

  return {
    crumbs: [],
    async refresh() {
      known = await call("/fleet");
      token.accepted(known.realm);
      document.getElementById("mode").textContent = known.realm === "kubernetes" ? "Rights of the token"
        : known.actions ? "Actions allowed" : "Read-only";
      fill(more, known.realm === "tailrace" && el("a", { href: "#/setup", key: "setup" }, "Set up a new Replicator"));
      show();
    },
  };
}

function row(r) {
  const objective = r.objective === null ? (r.freshnessMissed ? el("span", { className: "warn" }, "late") : "–")
    : el("span", { className: r.objective.remaining !== null && r.objective.remaining < 0 ? "bad" : "good" },
      `${r.objective.metPercent ?? "–"} % of ${r.objective.percent} % within ${seconds(r.objective.withinSeconds)}`);
  const failing = el("span", { className: r.tablesFailing ? "bad" : "" },
    `${r.tablesFailing} of ${number(r.tablesTotal)}`);
  return [el("a", { href: `#/r/${part(r.name)}`, key: `r/${r.name}` }, r.name), state(r.state), seconds(r.lagSeconds),
    sparkline(r.lagHistory), objective, failing, number(r.rowsPerSecond), bytes(r.retainedBytes), r.message];
}
