// Elements, the API, and how numbers are written.
// Texts are set as text only: nothing that a server says becomes markup.

export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "key") made.dataset.key = value;
    else if (name in made && typeof made[name] !== "object") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function sparkline(values) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return el("span", { className: "dim" }, "–");
  const most = Math.max(...known, 1);
  const step = 120 / (values.length - 1);
  const points = values.map((v, i) => (v === null ? null
    : `${(i * step).toFixed(1)},${(22 - (20 * v) / most).toFixed(1)}`));
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("class", "spark");
  drawing.setAttribute("viewBox", "0 0 120 24");
  drawing.setAttribute("role", "img");
  drawing.setAttribute("aria-label", `lag of the last hour: at most ${seconds(Math.max(...known))}`);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", points.filter((point) => point !== null).join(" "));
  drawing.append(line);
  return drawing;
}

export class Refused extends Error {
  constructor(code, problem, realm = null) {
    super(problem.message);
    this.code = code;
    this.realm = realm;
    this.problem = problem;
  }
}

// A token is in memory; only the console's own one also survives a reload, until the tab is closed. One of Kubernetes
// is written nowhere.
let given = null;
export const token = {
  realm: "tailrace",
  get: () => given ?? sessionStorage.getItem("tailrace-token") ?? "",
  set: (text) => { given = text; },
  accepted(realm) {
    token.realm = realm;
    if (realm === "tailrace" && given !== null) sessionStorage.setItem("tailrace-token", given);
  },
};

export async function call(path, body) {
  const headers = { Authorization: `Bearer ${token.get()}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`/api/v1${path}`, {
      method: body === undefined ? "GET" : "POST", headers, body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Refused(0, { name: "NotRunning", message: "the console does not answer",
      fix: token.realm === "kubernetes"
        ? "Start kubectl port-forward again; if that fails, look at the console's pod."
        : "Start `tailrace console`." });
  }
  let document;
  try {
    document = await answer.json();
  } catch {
    throw new Refused(answer.status, { name: "InternalError", message: `the console answered ${answer.status}`,
      fix: "See the console's log." });
  }
  const realm = answer.headers.get("WWW-Authenticate")?.match(/realm="(\w+)"/)?.[1] ?? null;
  if (!answer.ok) throw new Refused(answer.status, document, realm);
  return document;
}

export const part = encodeURIComponent;

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return value === 0 ? "0 s" : `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${Number(value.toPrecision(3))} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86400)} d`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

// toLocaleString would load the tables of all languages before the first paint.
export const number = (value) => (typeof value === "number"
  ? String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",") : "–");
export const rate = (value) => `${number(value)} rows/s`;
export const time = (value) => (value ? new Date(value * 1000).toISOString().replace("T", " ").slice(0, 19) + "Z"
  : "–");

const TONES = {
  Running: "good", Starting: "busy", Suspended: "warn", Failing: "bad", Stopped: "bad", NotRunning: "bad",
  REPLICATING: "good", SNAPSHOTTING: "busy", WAITING: "busy", FAILING: "bad", STOPPED: "bad",
  Degraded: "bad", Succeeded: "good", Deleting: "warn", Warning: "warn", Normal: "good", Open: "busy", Done: "good",
  Ignored: "warn",
  Completed: "good", Pending: "busy", Paused: "warn", Failed: "bad", YES: "good", PARTIAL: "warn", NO: "bad",
  ok: "good", warn: "warn", fail: "bad",
};
const NAMES = { NotRunning: "Not running" };

export const state = (word) => el("span", { className: `state ${TONES[word] ?? ""}` }, NAMES[word] ?? word);

export function fault(found, title = "h3") {
  const since = found.since ? el("p", { className: "dim" }, `since ${time(found.since)}`) : null;
  return el("div", { className: "panel fault" }, el(title, {}, found.name), el("p", {}, found.message),
    found.fix ? el("p", {}, el("strong", {}, "Fix: "), found.fix) : null, since);
}

export const line = (heads, cells) => el("tr", {}, cells.map((cell, i) =>
  el("td", { className: heads[i].number ? "number" : "" }, cell ?? "–")));

export function grid(caption, heads, rows) {
  const head = heads.map((h) => el("th", { scope: "col", className: h.number ? "number" : "" }, h.name ?? h));
  const body = rows.map((cells) => line(heads, cells));
  return el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

export const count = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;

export const num = (name) => ({ name, number: true });

// Replaces what is in `place`, and keeps the focus on the element of the same key.
export function fill(place, ...children) {
  keepFocus(place, () => place.replaceChildren(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== false)));
}

// Makes these the children of `place`; those that are there already, in this order, are not touched.
export function settle(place, children) {
  keepFocus(place, () => {
    let at = place.firstChild;
    for (const child of children) {
      if (child === at) at = at.nextSibling;
      else place.insertBefore(child, at);
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  });
}

function keepFocus(place, change) {
  const held = document.activeElement?.dataset?.key;
  change();
  if (held && document.activeElement?.dataset?.key !== held) {
    place.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
  }
}
