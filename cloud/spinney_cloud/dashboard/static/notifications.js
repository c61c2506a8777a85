// Notifications as they come.

import { $, atSeconds, count, empty, h, left, shown } from "./dom.js";
import { on, state } from "./live.js";

const MEANING = { match: "match", enter: "begins", exit: "ends", top: "top" };
const HIDDEN = new Set(["id", "source", "time", "lat", "long", "valid_for", "cell", "heard", "type"]);
const MAX_VALUES = 5;

export function note(one) {
  const publication = one.publication || {};
  const values = Object.entries(publication).filter(([name]) => !HIDDEN.has(name)), more = values.length - MAX_VALUES;
  return h("li", { class: "told" },
    h("span", { class: "badge", dataset: { why: one.why } }, one.rank ? `no. ${one.rank}` : MEANING[one.why] || one.why),
    h("div", { class: "told-what" },
      h("strong", {}, one.sid), publication.source ? ` · ${publication.source}` : one.scope !== undefined ? ` · ${shown(one.scope)}` : ""),
    h("time", { class: "note" }, atSeconds(one.time)),
    h("div", { class: "chips" }, values.slice(0, MAX_VALUES).map(([name, value]) => h("span", { class: "tag" }, `${name} ${shown(value)}`)), more > 0 && h("span", { class: "note" }, `and ${more} more`), one.reason && h("span", { class: "tag" }, one.reason)));
}

export function begin() {
  on("notes", draw);
  draw();
}
export const shownNow = draw;
export { shownNow as shown };

function draw() {
  if ($("view-notifications")?.hidden !== false) return;
  if (!state.notes.length) $("told-rows").replaceChildren(empty("notifications_none", "Nothing yet", "Make a subscription, and what it finds appears here at once."));
  else $("told-rows").replaceChildren(h("p", { class: "note" }, `The newest ${count(state.notes.length)}`), h("ul", { class: "notes" }, state.notes.map(note)), state.notesMore === null ? h("p", { class: "note" }, "and older ones") : left(state.notesMore) || "");
}
