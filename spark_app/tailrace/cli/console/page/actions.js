// Buttons that show what an action does, and the command and manifest that do the same, before it is carried out.
import { call, el, fault, part, Refused } from "./dom.js";

export function buttons(name, wanted) {
  return wanted.map((one) => el("button", { type: "button", key: `act/${one.label}/${one.about ?? ""}`,
    "aria-label": one.about ? `${one.label} ${one.about}` : null, onclick: () => ask(name, one) }, one.label));
}

function ask(name, one) {
  const path = `/replicators/${part(name)}/actions`;
  const shown = el("div");
  const patterns = el("input", { value: "*.*", size: 40 });
  const act = el("button", { type: "button", disabled: true, onclick: () => run(false) }, "Carry out");
  const dialog = el("dialog", { "aria-label": one.label, onclose: () => dialog.remove() }, el("h2", {}, one.label),
    one.tables && el("label", {}, "Tables (patterns, separated by blanks)", patterns), shown,
    el("div", { className: "controls" }, act, el("button", { type: "button", onclick: () => dialog.close() },
      "Close")));
  const allowed = document.getElementById("mode").textContent !== "Read-only";

  async function run(preview) {
    const tables = one.tables ? { tables: patterns.value.split(/\s+/).filter((text) => text) } : {};
    act.disabled = true;
    try {
      const answer = await call(path, { ...one.body, ...tables, preview });
      shown.replaceChildren(el("p", { role: "status" }, answer.done ? `Done. ${answer.message}`
        : `This ${answer.message}.`),
        ...(answer.done ? [] : [el("p", {}, "The same by hand:"), el("pre", { tabIndex: 0 }, answer.command)]),
        ...(answer.manifest && !answer.done ? [el("pre", { tabIndex: 0 }, answer.manifest)] : []),
        ...(allowed ? [] : [el("p", { className: "dim" },
          "This console is read-only: it was started without --allow-actions.")]));
      act.disabled = answer.done || !allowed;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      shown.replaceChildren(fault(error.problem));
    }
  }

  patterns.addEventListener("change", () => run(true));
  document.body.append(dialog);
  dialog.showModal();
  run(true);
}
