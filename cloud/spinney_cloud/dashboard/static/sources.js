// All sources: what each said last, and a small chart of its hour.

import { $, ago, chartLabel, count, empty, h, icon, refill, shown, spark } from "./dom.js";
import { chart, doing, numeric, on, series, sources, state } from "./live.js";

const PAGE = 40, MAX_CHARTS = 3;
let wanted = "", many = PAGE;

export function begin() {
  $("source-tools").append(
    h("label", { class: "search" }, icon("search"),
      h("input", { id: "source-search", type: "search", placeholder: "Find a source by name or value", "aria-label": "Find a source", oninput: (event) => { wanted = event.target.value.toLowerCase(); many = PAGE; draw(); } })),
    h("span", { id: "source-count", class: "note", role: "status" }));
  on("overview", () => { if (!$("view-sources").hidden) draw(); });
  for (const kind of ["points", "present"]) on(kind, ({ whole }) => { if (whole) draw(); });
  on("series", draw);
}

export { draw as shown };

const fits = (one) => !wanted || one.name.toLowerCase().includes(wanted) || Object.entries(one.values).some(([name, value]) => `${name} ${value}`.toLowerCase().includes(wanted));
const found = () => [...sources.values()].filter(fits).sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));

function draw() {
  if ($("view-sources").hidden) return;
  const all = found(), names = numeric();
  $("source-count").textContent = `${count(all.length)} of ${count(sources.size)}`;
  if (!all.length) {
    refill($("source-rows"), sources.size
      ? empty("search_off", "No source fits", "Another word, or a part of the name, may find it.")
      : empty("sensors_off", "No source yet", "As soon as one publishes it appears here. Try: spinney pub --source hall NO2=41"));
    return;
  }
  const shownOnes = all.slice(0, many);
  chart(shownOnes.map((one) => one.name));
  const list = h("ul", { class: "source-list" }, shownOnes.map((one) => row(one, names)));
  const more = all.length > many && h("button", { type: "button", class: "button", onclick: () => { many += PAGE; draw(); } }, `Show ${Math.min(PAGE, all.length - many)} more`);
  refill($("source-rows"), ...[list, more].filter(Boolean));
}

// Also the way to choose one without a pointer.
function choose(name) {
  state.chosen = name;
  location.hash = "#/map";
}

const said = (one) => [one.time ? ago(one.time) : null, doing(one) === "spared" ? `with ${one.here}, nothing to tell` : null].filter(Boolean).join(" · ");

function row(one, names) {
  const numbers = names.filter((name) => typeof one.values[name] === "number");
  const others = Object.entries(one.values).filter(([, value]) => typeof value !== "number");
  return h("li", { class: "source" },
    h("div", { class: "source-head" }, h("button", { type: "button", class: "source-name", "aria-label": `Show ${one.name} on the map`, onclick: () => choose(one.name) }, one.name), h("span", { class: "note" }, said(one))),
    numbers.length > 0 && h("div", { class: "charts" }, numbers.slice(0, MAX_CHARTS).map((name) => {
      const line = series(one.name, name);
      return h("div", { class: "chart" }, h("span", { class: "value-name" }, name), h("strong", {}, shown(one.values[name])), spark(line, chartLabel(name, line)));
    })),
    h("div", { class: "chips" }, [...numbers.slice(MAX_CHARTS).map((name) => [name, one.values[name]]), ...others].map(([name, value]) => h("span", { class: "tag" }, `${name} ${shown(value)}`)), one.more > 0 && h("span", { class: "note" }, `and ${count(one.more)} more`)));
}
