// The set-up help for a source that no manifest names yet. What is entered goes when this view does.
import { call, el, fault, fill, Refused } from "./dom.js";
import { described } from "./setup.js";

export function connect(main) {
  const text = (name, value = "", more = {}) => el("input", { name, value, required: true, size: 30, ...more });
  const select = (name, ...values) => el("select", { name }, values.map((v) => el("option", { value: v }, v)));
  const fields = [
    ["Name of the Replicator", text("name", "shop")],
    ["Database", select("type", "postgresql", "mysql")],
    ["Host", text("host", "localhost")],
    ["Port (empty: the usual one)", text("port", "", { type: "number", min: 1, max: 65535, required: false })],
    ["Database name (PostgreSQL)", text("database", "", { required: false })],
    ["User", text("username")],
    ["Password (empty: none is sent)", text("password", "",
      { type: "password", autocomplete: "off", required: false })],
    ["TLS", select("tls", "prefer", "require", "verify-full", "disable")],
    ["Tables (patterns, separated by blanks)", text("tables", "public.*")],
    ["Target", select("target", "delta", "iceberg")],
    ["Target location", text("targetLocation", "file:///srv/tailrace/lake")],
    ["Change log location", text("storageLocation", "file:///srv/tailrace/log")],
  ];
  const look = el("button", {}, "Check source and tables");
  const place = el("div", { "aria-live": "polite" });
  const form = el("form", { onsubmit: (event) => { event.preventDefault(); ask(); } },
    el("div", { className: "controls" }, fields.map(([label, field]) => el("label", {}, label, field))), look);
  main.replaceChildren(el("h1", {}, "Set-up of a new Replicator"),
    el("p", {}, "Checks the source, and writes and removes a small test file at both locations."
      + " Nothing is kept, and no settings are stored."),
    form, place);

  async function ask() {
    const given = Object.fromEntries(fields.map(([, field]) => [field.name, field.value.trim()]));
    look.disabled = true;
    fill(place, el("p", { role: "status" }, "Asking the source …"));
    try {
      const found = await call("/setup", { ...given, port: given.port ? Number(given.port) : null,
        database: given.database || null, password: fields[6][1].value || null,
        tables: given.tables.split(/\s+/).filter((pattern) => pattern) });
      const chosen = new Map(found.assessment.tables.map((t) => [t.table, t.copied]));
      const show = () => fill(place, described(found.assessment, chosen, show, found.manifest));
      show();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      fill(place, fault(error.problem, "h2"));
    } finally {
      look.disabled = false;
    }
  }

  return { crumbs: [["Set-up"]], refresh: async () => {} };
}
