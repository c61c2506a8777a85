// Mobile brokers with what is active on them; and for operators the cloud's own processes.

import { $, about, count, empty, figure, h, left, may, number, percent, refill } from "./dom.js";
import { on, state } from "./live.js";

const NAMES = { gateway: "Gateway", matcher: "Matcher", coordinator: "Coordinator", delivery: "Delivery", http: "HTTP and page", pipeline: "Pipeline" };

export function begin() {
  on("brokers", draw);
  on("operations", draw);
  on("link", draw);
  draw();
}

const lag = (seconds) => (seconds === undefined ? "–" : seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${number(seconds)} s`);

function draw() {
  drawFigures();
  drawBrokers();
  drawProcesses();
}

function drawFigures() {
  const told = state.operations, counts = told?.counts || {};
  const figures = [figure("This page", state.linked ? "Live" : "Reconnecting", `${count(state.frames)} messages, Spinney ${about.version}`, state.linked ? "good" : "bad")];
  if (may("operate")) {
    figures.push(
      figure("Cloud", told ? (told.health.ready ? "Ready" : "Not ready") : "–", told?.health.why[0] || "all processes do their work", !told ? "" : told.health.ready ? "good" : "bad"),
      figure("Matcher lag", lag(counts.matcher_lag), `${count(counts.matcher_behind || 0)} records wait`),
      "pipeline_lag" in counts || "pipeline_behind" in counts
        ? figure("Pipeline lag", lag(counts.pipeline_lag), `${count(counts.pipeline_behind || 0)} records wait`)
        : figure("Pipeline lag", "–", told?.setup ? told.setup.text : "no pipeline runs"),
      figure("Notifications delivered", count((counts.delivered || 0) + (counts.events || 0)), `${count(counts.delivery_dropped || 0)} dropped`));
  }
  const { unseen = 0, forgotten = 0 } = state.overview || {};
  if (unseen || forgotten) figures.push(figure("Left out of this page", count(unseen), `readings, too many at once; ${count(forgotten)} sources or half minutes forgotten, too many at all`, "bad"));
  $("health-figures").replaceChildren(...figures);
}

function drawBrokers() {
  if (!state.brokers.length) {
    refill($("broker-rows"), empty("router", "No mobile broker yet", "One appears as soon as it announces itself: spinney mobile run"));
    return;
  }
  refill($("broker-rows"), h("ul", { class: "plain" }, state.brokers.map(broker)), left(state.brokersMore) || "");
}

function broker(one) {
  const filters = one.active.length
    ? h("details", { class: "filters", dataset: { key: one.broker } }, h("summary", { dataset: { key: `filters ${one.broker}` } }, `${count(one.filters)} active ${one.filters === 1 ? "filter" : "filters"}`), h("ul", {}, one.active.map((text) => h("li", {}, h("code", {}, text)))), left(one.filters - one.active.length))
    : h("span", { class: "note" }, "no active filter: nothing needs to go up");
  return h("li", { class: "row" },
    h("span", { class: "state", dataset: { is: one.away ? "bad" : "good" } }, one.away ? "away" : "here"),
    h("div", { class: "row-main" }, h("strong", {}, one.broker),
      h("span", { class: "note" }, [`${count(one.sources)} sources`, one.battery === null ? null : `battery ${percent(one.battery)}`].filter(Boolean).join(" · ")), filters));
}

function drawProcesses() {
  if (!may("operate")) {
    $("process-rows").replaceChildren(empty("lock", "For operators", "The cloud's own processes are shown to operators."));
    return;
  }
  const processes = Object.entries(state.operations?.health.processes || {});
  if (!processes.length) {
    $("process-rows").replaceChildren(empty("hourglass_empty", "Asking", "The processes are being asked."));
    return;
  }
  $("process-rows").replaceChildren(h("ul", { class: "plain" }, processes.map(([name, told]) =>
    h("li", { class: "row" }, h("span", { class: "state", dataset: { is: told.ready ? "good" : "bad" } }, told.ready ? "ready" : "not ready"),
      h("div", { class: "row-main" }, h("strong", {}, NAMES[name] || name), h("span", { class: "note" }, told.why || "does its work"))))));
}

