// All Replicators, those with problems first.
import { bytes, call, el, fill, grid, line, num, number, part, seconds, settle, sparkline, state, token }
  from "./dom.js";

const SCREENFUL = 30;
const STEP = 150; // rows that are added at a time, so that keys are answered in between

const HEADS = ["Replicator", "State", num("Lag"), "Last hour", "Freshness objective", num("Tables failing"),
  num("Rows/s"), num("Source log kept"), "Message"];

export function fleet(main) {
  const search = el("input", { type: "search", id: "search", oninput: () => show() });
  const place = grid("", HEADS, []), more = el("p");
  const caption = place.querySelector("caption"), body = place.querySelector("tbody");
  const made = new Map(); // name of a Replicator -> what its row was made from, and the row
  let known = null, turn = 0;
  place.hidden = true;
  main.replaceChildren(el("h1", {}, "Fleet"),
    el("div", { className: "controls" }, el("label", {}, "Search", search)), place, more);

  function show() {
    if (known === null) return;
    const text = search.value.toLowerCase();
    const found = known.replicators.filter((r) => r.name.toLowerCase().includes(text));
    const trouble = known.replicators.filter((r) => r.trouble > 0).length;
    const said = `${known.replicators.length} Replicators, ${trouble} with problems`;
    if (caption.textContent !== said) { caption.textContent = said; place.setAttribute("aria-label", said); }
    place.hidden = false;
    draw(found, ++turn, Math.max(SCREENFUL, body.childElementCount));
  }

  // The first screenful, or what is shown now; the rest after it is painted. Rows of the same content stay.
  function draw(found, mine, most) {
    settle(body, found.slice(0, most).map(kept));
    if (most < found.length) {
      requestAnimationFrame(() => setTimeout(() => { if (mine === turn) draw(found, mine, most + STEP); }));
    }
  }

  function kept(r) {
    const text = JSON.stringify(r);
    const old = made.get(r.name);
    if (old?.[0] === text) return old[1];
    const fresh = line(HEADS, row(r));
    made.set(r.name, [text, fresh]);
    return fresh;
  }

  return {
    crumbs: [],
    async refresh() {
      known = await call("/fleet");
      for (const name of made.keys()) if (!known.replicators.some((r) => r.name === name)) made.delete(name);
      token.accepted(known.realm);
      document.getElementById("mode").textContent = !known.actions ? "Read-only"
        : known.realm === "kubernetes" ? "Rights of the token" : "Actions allowed";
      fill(more, known.realm === "tailrace" ? el("a", { href: "#/setup", key: "setup" }, "Set up a new Replicator")
        : el("span", { className: "dim" },
          "To set up a new Replicator, run `tailrace console` where its source can be reached."));
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
