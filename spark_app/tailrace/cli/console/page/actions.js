// Buttons that show what an action does, and the command and manifest that do the same, before it is carried out.
import { call, el, fault, part, Refused } from "./dom.js";

// `refused`: the actions that the caller may not carry out. Their buttons say so, and still show what they would do.
export function buttons(name, wanted, refused = []) {
  return wanted.map((one) => {
    const why = refused.find((r) => r.verb === one.body.verb)?.why;
    const label = `${one.label}${one.about ? ` ${one.about}` : ""}${why ? ", not allowed" : ""}`;
    return el("button", { type: "button", key: `act/${one.label}/${one.about ?? ""}`, className: why ? "refused" : "",
      "aria-label": one.about || why ? label : null, title: why ?? null, onclick: () => ask(name, one) }, one.label);
  });
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
        ...(answer.refused ? [el("p", { className: "bad" }, `Not allowed: ${answer.refused}.`)] : []),
        ...(allowed ? [] : [el("p", { className: "dim" },
          "This console is read-only: it runs without --allow-actions (in Kubernetes: console.allowActions)."
        )]));
      act.disabled = answer.done || !allowed || answer.refused !== null;
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
