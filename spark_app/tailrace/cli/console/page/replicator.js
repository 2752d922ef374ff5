// One Replicator: its path, the last hour, tables, snapshots, cuts, conditions.
import { bytes, call, count, el, fault, fill, grid, num, number, part, rate, seconds, state, time, token }
  from "./dom.js";
import { buttons } from "./actions.js";
import { charts } from "./charts.js";

const PAGE = 100;
const STATES = ["STOPPED", "FAILING", "SNAPSHOTTING", "WAITING", "REPLICATING"];

export function replicator(main, name) {
  const base = `/replicators/${part(name)}`;
  const top = el("div"), actions = el("div", { className: "controls" });
  const conditions = el("div"), path = el("div"), snapshots = el("div"), cuts = el("div"), rows = el("div");
  const signals = el("div"), events = el("div");
  const lines = charts();
  const search = el("input", { type: "search", id: "search", oninput: () => { offset = 0; soon(); } });
  const filter = el("select", { onchange: () => { offset = 0; soon(); } },
    el("option", { value: "" }, "all"), ...STATES.map((s) => el("option", { value: s }, s)));
  let offset = 0, timer = 0, asked = 0;

  main.replaceChildren(el("h1", {}, name), top, actions, conditions, path,
    el("h2", {}, "Last hour"), lines.place, el("h2", {}, "Snapshots and verifications"), snapshots,
    el("h2", {}, "Tables"), el("div", { className: "controls" },
      el("label", {}, "Search", search), el("label", {}, "State", filter)), rows,
    el("h2", {}, "Cuts"), cuts, el("h2", {}, "Signals"), signals, el("h2", {}, "Events"), events);

  const soon = () => { clearTimeout(timer); timer = setTimeout(() => tables().catch(() => {}), 150); };

  async function tables() {
    const mine = ++asked;
    const query = new URLSearchParams({ search: search.value, state: filter.value, offset, limit: PAGE });
    const found = await call(`${base}/tables?${query}`);
    if (mine !== asked) return;
    const move = (by) => { offset = Math.max(0, offset + by); soon(); };
    const last = Math.min(offset + PAGE, found.matching);
    fill(rows, grid(`${number(found.matching)} of ${number(found.total)} tables`,
      ["Table", "State", num("Lag"), num("Rows/s"), num("Snapshot rows"), num("Inserts"), num("Updates"),
        num("Deletes"),
        "Verified", "Fault and fix"], found.tables.map((t) => row(name, t))),
    found.matching > PAGE && el("div", { className: "controls" },
      el("button", { type: "button", disabled: offset === 0, key: "back", onclick: () => move(-PAGE) }, "Previous"),
      el("span", {}, `${offset + 1} to ${last}`),
      el("button", { type: "button", disabled: last >= found.matching, key: "on", onclick: () => move(PAGE) },
        "Next")));
  }

  return {
    crumbs: [[name]],
    repaint: () => lines.repaint(),
    close: () => lines.close(),
    async refresh() {
      const one = await call(base);
      const status = one.status;
      fill(top, el("p", {}, state(one.summary.state), one.summary.message ? `: ${one.summary.message}` : ""),
        !one.live && one.summary.problem === null && el("p", { className: "warn" },
          "No driver answers the console: this is what the resources report."),
        one.summary.problem && fault(one.summary.problem, "h2"), one.summary.fault && fault(one.summary.fault, "h2"),
        el("p", {}, el("a", { href: `#/r/${part(name)}/setup`, key: "setup" }, "Check source and tables (doctor)")));
      fill(conditions, one.conditions.length > 0 && el("ul", {}, one.conditions.map((c) => el("li", {}, c))));
      fill(path, drawn(one));
      if (status === null) { for (const p of [actions, snapshots, rows, cuts, signals, events]) fill(p); return; }
      fill(actions, buttons(name, [
        { label: status.apply.suspended ? "Resume apply" : "Suspend apply",
          body: { verb: status.apply.suspended ? "unsuspend" : "suspend" } },
        ...(token.realm !== "kubernetes" ? [] : [one.summary.state === "Suspended"
          ? { label: "Start up", body: { verb: "startUp" } } : { label: "Shut down", body: { verb: "shutDown" } }]),
        { label: "Make a cut", body: { verb: "cut" } },
        { label: "Snapshot …", body: { verb: "snapshot" }, tables: true },
        { label: "Verify …", body: { verb: "verify" }, tables: true },
        { label: "Repair …", body: { verb: "repair" }, tables: true }], one.refused));
      fill(snapshots, status.snapshots.length === 0 ? el("p", { className: "dim" }, "None.")
        : grid(`${count(status.snapshots.length, "snapshot")}, the newest first`,
          ["Snapshot", "Kind", "State", num("Tables"), "Rows", num("Rows/s"), num("Time left"), "Result", "Actions"],
          [...status.snapshots].reverse().map((s) => snapshot(name, s, one.refused))));
      fill(signals, status.signals.length === 0 ? el("p", { className: "dim" }, "None.")
        : grid(`${count(status.signals.length, "signal")}, the newest first`,
          ["Received", "Id", "Type", "State", "Message"], [...status.signals].reverse().map((x) =>
            [time(x.received), x.id, x.type, state(x.state), x.message || "–"])));
      const [history] = await Promise.all([call(`${base}/history`).catch(() => null), tables(), kept(), happened()]);
      if (history) await lines.show(history);

      async function happened() {
        const found = await call(`${base}/events`).catch((error) => ({ events: [], why: reason(error) }));
        const none = token.realm === "kubernetes" ? "None."
          : "Events exist only in Kubernetes; here, see the driver's log.";
        fill(events, found.events.length === 0 ? el("p", { className: "dim" }, found.why ?? none)
          : grid(`${count(found.events.length, "event")}, the newest first`,
            ["Last seen", "About", "Type", "Reason", "Message", num("Count")], found.events.map((e) =>
              [time(e.at), e.about, state(e.type), e.reason, e.message, number(e.count)])));
      }

      async function kept() {
        const found = await call(`${base}/cuts`).catch((error) => ({ cuts: [], why: reason(error) }));
        fill(cuts, found.cuts.length === 0 ? el("p", { className: "dim" }, found.why ?? "None.")
          : grid(`${count(found.cuts.length, "cut")}, the newest first`,
            ["Cut", "Made", "Position", num("Record"), "Complete", "Not in it", "Actions"],
            [...found.cuts].reverse().map((c) => [c.name, time(c.made), c.position, number(c.record),
              c.complete ? "yes" : c.waits ? "tables are on their way" : "no",
              c.tables.filter((t) => t.why).map((t) => `${t.name}: ${t.why}`).slice(0, 5).join("; ") || "–",
              buttons(name, [{ label: "Drop", body: { verb: "dropCut", cut: c.name }, about: `cut ${c.name}` }],
                one.refused)])));
      }
    },
  };
}

function drawn(one) {
  const s = one.status;
  const flow = (text, lag) => el("li", { className: "flow" }, el("b", { "aria-hidden": "true" }, "→"), text,
    el("br"), `lag ${seconds(lag)}`);
  return el("ol", { className: "path", "aria-label": "Path of the data" },
    el("li", { className: "panel" }, el("strong", {}, "Source"), el("br"), one.source,
      s && el("div", { className: "dim" }, `keeps ${bytes(s.capture.retainedBytes)} of log`)),
    s && flow(`captures ${rate(s.capture.rowsPerSecond)}`, s.capture.lagSeconds),
    el("li", { className: "panel" }, el("strong", {}, "Change log"), el("br"), one.storage,
      s && el("div", { className: "dim" },
        `record ${number(s.capture.record)}, position ${s.capture.position ?? "–"}`)),
    s && flow(`applies ${rate(s.apply.rowsPerSecond)}`, s.apply.lagSeconds),
    el("li", { className: "panel" }, el("strong", {}, "Target"), el("br"), one.target,
      s && el("div", { className: "dim" }, `everything up to record ${number(s.apply.record)}`)));
}

function row(name, t) {
  const href = `#/r/${part(name)}/t/${part(t.name)}`;
  const c = t.counters, v = t.verified;
  const differences = v && v.compared.missing + v.compared.extra + v.compared.different;
  return [el("a", { href, key: `t/${t.name}` }, t.name), state(t.state), seconds(t.lagSeconds), number(t.rowsPerSecond),
    number(c.snapshotRows), number(c.inserts), number(c.updates), number(c.deletes),
    v ? el("span", { className: differences ? "bad" : v.compared.undecided ? "warn" : "good" },
      outcome(v.compared), ` (${time(v.at)})`) : "–",
    t.fault ? el("span", {}, el("strong", {}, t.fault.name), `: ${t.fault.message} `, t.fault.fix
      ? `Fix: ${t.fault.fix}` : "")
      : "–"];
}

// Rows that could not be decided are neither equal nor different.
function outcome(c) {
  const differences = c.missing + c.extra + c.different;
  const words = [differences && `${number(differences)} rows differ`,
    c.undecided && `${number(c.undecided)} rows undecided`].filter((text) => text);
  return words.join(", ") || "equal";
}

function snapshot(name, s, refused) {
  const under = ["Pending", "Running", "Paused"].includes(s.state);
  const most = Math.max(s.rowsEstimated, 1);
  const bar = el("span", {}, `${number(s.rowsDone)} `, under && el("progress", { max: most,
    value: Math.min(s.rowsDone, most),
    "aria-label": `rows of ${s.id}` }));
  const compared = s.tables.map((t) => t.compared).filter((c) => c);
  const total = (field) => compared.reduce((sum, c) => sum + c[field], 0);
  const sums = Object.fromEntries(["missing", "extra", "different", "undecided"].map((field) => [field, total(field)]));
  const result = s.fault ? `${s.fault.name}: ${s.fault.message}` : !s.verify ? "–"
    : compared.length === 0 ? "nothing compared yet"
    : under && outcome(sums) === "equal" ? "equal so far" : outcome(sums);
  const acts = !under ? "–" : buttons(name, [
    { label: s.state === "Paused" ? "Resume" : "Pause", about: s.id,
      body: { verb: s.state === "Paused" ? "resume" : "pause", snapshot: s.id } },
    { label: "Stop", about: s.id, body: { verb: "stop", snapshot: s.id } }], refused);
  return [s.name ?? s.id, s.verify ? "verification" : s.reason, state(s.state), `${s.tablesDone} of ${s.tablesTotal}`,
    bar,
    number(s.rowsPerSecond), seconds(s.secondsLeft), result, acts];
}

function reason(error) {
  return `${error.message}. ${error.problem?.fix ?? ""}`;
}
