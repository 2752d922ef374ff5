// Numbers of the last hour, drawn by uPlot, which is loaded when it is first needed.
import { el, number, seconds, time } from "./dom.js";

// Each chart: its title, how a number is written, and its series of two lists of `history` with their names.
const LAST_HOUR = (history) => [
  ["Lag", seconds, [["capture", history.captureLagSeconds], ["apply", history.applyLagSeconds]]],
  ["Rows a second", number,
    [["captured", history.capturedRowsPerSecond], ["applied", history.appliedRowsPerSecond]]],
];
export const COUNTERS = (history) => [
  ["Rows a minute", number, [["inserts", history.inserts], ["updates", history.updates]]],
  ["Deletes and snapshot rows a minute", number, [["deletes", history.deletes], ["snapshot", history.snapshotRows]]],
];

export function charts(wanted = LAST_HOUR) {
  const place = el("div", { className: "charts" });
  let last = null, drawn = [];
  const close = () => { drawn.forEach((chart) => chart.destroy()); drawn = []; };

  async function show(history) {
    last = history;
    if (history.at.length < 2) {
      close();
      place.replaceChildren(el("p", { className: "dim" }, "The driver has not collected numbers yet."));
      return;
    }
    const [{ default: Plot }] = await Promise.all([import("./vendor/uPlot.esm.js"), styled()]);
    if (last !== history) return;
    close();
    place.replaceChildren();
    const most = (values) => Math.max(0, ...values.filter((v) => v !== null));
    const frames = wanted(history).map(([title, text, series]) => one(title, text, series, most));
    frames.forEach((draw) => draw(Plot, history.at)); // all have their width now
  }
  function one(title, text, series, most) {
    const said = series.map(([label, values]) => `${label} at most ${text(most(values))}`).join(", ");
    const frame = el("div", { role: "img", "aria-label": `${title} over the last hour: ${said}` });
    const words = el("p", { className: "dim" }, series.map(([label, values], i) =>
      el("span", {}, el("span", { className: i ? "good" : "busy", "aria-hidden": "true" }, i ? " — " : "— "),
        `${label} at most ${text(most(values))}`)));
    place.append(el("div", {}, el("h3", {}, title), frame, words));
    return (Plot, at) => plot(Plot, frame, text, at, series);
  }

  function plot(Plot, frame, text, at, series) {
    const axis = { stroke: probe("--dim"), grid: { stroke: probe("--line"), width: 1 },
      ticks: { stroke: probe("--line") } };
    drawn.push(new Plot({
      width: frame.clientWidth, height: 200, legend: { show: false }, cursor: { show: false },
      axes: [{ ...axis, values: (_, ticks) => ticks.map((at) => time(at).slice(11, 16)) },
        { ...axis, size: 80, values: (_, ticks) => ticks.map((v) => text(v)) }],
      series: [{}, ...series.map(([label], i) => ({ label, stroke: probe(i ? "--good" : "--busy"), width: 2 }))],
      scales: { y: { range: (_, low, high) => [0, Math.max(high ?? 0, 1)] } },
    }, [at, ...series.map(([, values]) => values)], frame));
  }

  return { place, show, close, repaint: () => last && show({ ...last }) };
}

// uPlot's own styles; the views without charts do without them.
let styles = null;
function styled() {
  styles ??= new Promise((done) => document.head.append(
    el("link", { rel: "stylesheet", href: "vendor/uPlot.min.css", onload: done, onerror: done })));
  return styles;
}

// The colour that a variable has in the theme of now: a canvas knows no variables.
function probe(name) {
  const made = el("span", { hidden: true });
  made.style.color = `var(${name})`;
  document.body.append(made);
  const colour = getComputedStyle(made).color;
  made.remove();
  return colour;
}
