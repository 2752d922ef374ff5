// The page: which view is shown, its refresh, keys, theme and token.
import { el, fault, Refused, token } from "./dom.js";
import { fleet } from "./fleet.js";

const REFRESH = 5000;
const main = document.getElementById("main");
const notice = document.getElementById("notice");
let view = null;
let turn = 0;

async function open() {
  const mine = ++turn;
  const parts = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  let made;
  if (parts[0] === "r" && parts[2] === "t") made = (await import("./table.js")).table(main, parts[1], parts[3]);
  else if (parts[0] === "r" && parts[2] === "setup") made = (await import("./setup.js")).setup(main, parts[1]);
  else if (parts[0] === "setup") made = (await import("./connect.js")).connect(main);
  else if (parts[0] === "r") made = (await import("./replicator.js")).replicator(main, parts[1]);
  else made = fleet(main);
  if (mine !== turn) return;
  view?.close?.();
  view = made;
  document.getElementById("crumbs").replaceChildren(...made.crumbs.flatMap(([name, href]) =>
    [" › ", href ? el("a", { href }, name) : el("span", { "aria-current": "page" }, name)]));
  document.title = ["Tailrace", ...made.crumbs.map(([name]) => name)].reverse().join(" · ");
  await refresh();
}

async function refresh() {
  const mine = view;
  try {
    await mine.refresh();
    if (mine === view) notice.replaceChildren();
  } catch (error) {
    if (mine !== view) return;
    if (!(error instanceof Refused)) throw error;
    if (error.code === 401) ask(error);
    else notice.replaceChildren(fault(error.problem, "strong"));
  }
}

const ASKED = {
  tailrace: "The token is missing or wrong. Open the address that tailrace console printed, or enter the token.",
  kubernetes: "Enter a token of Kubernetes: your own, or one of a ServiceAccount (kubectl create token NAME). " +
    "It is kept in this page's memory only, until the page is closed or loaded again.",
};

function ask(error) {
  token.realm = error.realm ?? token.realm;
  const refused = token.realm === "kubernetes" && token.get() !== "" ? el("p", { className: "bad" }, error.message)
    : null;
  const field = el("input", { type: "password", autocomplete: "off", required: true });
  const form = el("form", { onsubmit: (event) => {
    event.preventDefault();
    token.set(field.value.trim());
    notice.replaceChildren();
    open();
  } }, refused ?? "", el("p", {}, ASKED[token.realm]),
  el("div", { className: "controls" }, el("label", {}, "Token", field), el("button", {}, "Continue")));
  if (!notice.querySelector("form")) { notice.replaceChildren(form); field.focus(); }
}

const THEMES = ["system", "light", "dark"];
const button = document.getElementById("theme");
function theme(name) {
  localStorage.setItem("tailrace-theme", name);
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  button.textContent = `Theme: ${name}`;
  view?.repaint?.();
}
const next = () => theme(THEMES[(THEMES.indexOf(localStorage.getItem("tailrace-theme") ?? "system") + 1) % 3]);
button.addEventListener("click", next);
theme(localStorage.getItem("tailrace-theme") ?? "system");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.repaint?.());

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "/") { event.preventDefault(); document.getElementById("search")?.focus(); }
  else if (event.key === "h") location.hash = "#/";
  else if (event.key === "t") next();
});
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });

function take() {
  const given = location.hash.match(/^#token=(.+)$/);
  if (!given) return;
  token.set(decodeURIComponent(given[1]));
  history.replaceState(null, "", location.pathname + "#/");
}
take();
addEventListener("hashchange", () => {
  take();
  open().then(() => { main.focus({ preventScroll: true }); scrollTo(0, 0); });
});
setInterval(() => { if (!document.hidden && view && !notice.querySelector("form")) refresh(); }, REFRESH);
open();
