// The living map: sources, mobile brokers, cells by how much comes from them, and the hour to look back over.

import { $, about, ago, at, chartLabel, count, empty, figure, h, icon, left, may, now, number, percent, shown, spark } from "./dom.js";
import { Dots, L, Land, ramp, token } from "./layers.js";
import { chart, doing, numeric, on, say, series, sources, state, want } from "./live.js";
import { note } from "./notifications.js";
import { spared } from "./savings.js";

const LIKED = "spinney-colour", USUAL = ["NO2", "pm25", "pm10", "CO2", "temperature"]; // what dots are coloured by
const SLOT = 30, SLOTS = 120, FRAME_MS = 50;
const RESOLUTIONS = [[13, 9], [12, 8], [10, 7], [9, 6], [7, 5], [6, 4], [4, 3], [3, 2], [0, 1]]; // from which zoom on
let map, land, dots, cells, brokers, tiles;
let attribute = null, range = [0, 1], framed = false, dirty = true, asking = 0, pastAt = null, touched = false;
const MARKS = [["heard", "sends"], ["spared", "here, nothing to tell"], ["silent", "silent"]];
const visible = { cells: true, brokers: true };

export function begin() {
  makeMap();
  makeTools();
  makeTimeline();
  on("points", ({ whole }) => { dirty = true; if (whole) fit(); if (whole || attribute === null) measure(); });
  on("overview", () => { moveOn(); fit(); drawFigures(); drawTimeline(); measure(); drawSelected(); });
  on("present", () => { dirty = true; fit(); drawFigures(); });
  on("cells", drawCells);
  on("brokers", () => { drawBrokers(); drawFigures(); fit(); });
  on("notes", () => { drawLatest(); drawFigures(); });
  on("past", () => { dirty = true; drawCells(); drawFigures(); drawSelected(); });
  on("series", drawSelected);
  on("link", (is) => { if (is && pastAt) askPast(); });
  document.addEventListener("theme", redraw);
  redraw();
  measure();
  drawFigures();
  drawLatest();
  drawSelected();
  let last = 0;
  const loop = (time) => {
    if ((dirty || dots.glowing) && time - last >= FRAME_MS && !$("view-map").hidden) {
      last = time;
      dirty = false;
      drawDots();
    }
    requestAnimationFrame(loop);
  };
  requestAnimationFrame(loop);
}

export function shownNow() {
  map.invalidateSize();
  fit();
  if (state.chosen !== dots.chosen) select(state.chosen);
  else chart(state.chosen ? [state.chosen] : []);
}
export { shownNow as shown };

export function select(name) {
  state.chosen = dots.chosen = name;
  dirty = true;
  chart([name]);
  const one = sources.get(name), place = one && one.lat !== null ? [one.lat, one.long] : null;
  touched ||= place !== null;
  if (place && !map.getBounds().contains(place)) map.panTo(place, { animate: false });
  drawSelected();
}

// ---- The map itself

function makeMap() {
  map = L.map($("map"), { center: [30, 10], zoom: 2, minZoom: 2, maxZoom: 19, zoomSnap: 0.5, attributionControl: false, worldCopyJump: true });
  for (const [pane, depth] of [["land", 150], ["cells", 350], ["brokers", 380], ["dots", 420]]) map.createPane(pane).style.zIndex = depth;
  for (const pane of ["land", "dots"]) map.getPane(pane).style.pointerEvents = "none";
  L.control.scale({ imperial: false, position: "bottomleft" }).addTo(map);
  L.control.attribution({ prefix: "Natural Earth", position: "bottomright" }).addTo(map);
  land = new Land().addTo(map);
  land.load();
  makeTiles();
  cells = L.layerGroup().addTo(map);
  brokers = L.layerGroup().addTo(map);
  dots = new Dots().addTo(map);
  dots.colour = (one) => (typeof one.values[attribute] === "number" ? ramp((one.values[attribute] - range[0]) / (range[1] - range[0] || 1)) : null);
  for (const kind of ["pointerdown", "wheel", "keydown"]) $("map").addEventListener(kind, () => { touched = true; }, { passive: true });
  map.on("zoomend", askCells);
  map.on("click", (event) => { const name = dots.nearest(event.layerPoint); if (name) select(name); });
  map.on("mousemove", (event) => { $("map").style.cursor = dots.nearest(event.layerPoint) ? "pointer" : ""; });
  askCells();
}

// Tiles lie over the drawn land. Where they cannot be had they are taken away, and tried again later.
function makeTiles() {
  if (!about.tiles) return;
  let failed = 0;
  tiles = L.tileLayer(about.tiles, { attribution: about.attribution, className: "tiles", maxZoom: 19 });
  tiles.on("tileload", () => { failed = 0; $("map").dataset.base = "tiles"; });
  tiles.on("tileerror", () => {
    failed += 1;
    if (failed < 3 || !map.hasLayer(tiles)) return;
    map.removeLayer(tiles);
    $("map").dataset.base = "drawn";
    setTimeout(() => { failed = 0; tiles.addTo(map); }, 60000);
  });
  tiles.addTo(map);
}

function resolution() {
  return RESOLUTIONS.find(([zoom]) => map.getZoom() >= zoom)[1];
}

function askCells() {
  want({ resolution: resolution() });
  if (pastAt) askPast();
}

// All of it is in sight, until somebody looks at a part.
function fit() {
  if (touched || $("view-map").hidden) return;
  const places = [...sources.values()].filter((one) => one.lat !== null).map((one) => [one.lat, one.long]);
  for (const one of state.brokers) if (one.place?.lat !== undefined) places.push([one.place.lat, one.place.long]);
  if (!places.length || (framed && map.getBounds().contains(L.latLngBounds(places)))) return;
  framed = true;
  map.fitBounds(L.latLngBounds(places).pad(0.15), { maxZoom: 16, animate: false });
}

function redraw() {
  land.draw();
  drawCells();
  drawBrokers();
  drawTimeline();
  dirty = true;
}

// ---- What lies on it

function points() {
  if (!pastAt) return [...sources.values()];
  return (state.past?.points || []).map(([name, lat, long, time, values, more = 0]) => ({ name, lat, long, time, values, more, came: 0 }));
}

const known = (name) => (pastAt ? points().find((one) => one.name === name) : sources.get(name));

function drawDots() {
  dots.points = points();
  dots.past = pastAt;
  dots.draw();
}

function measure() {
  const names = numeric();
  const liked = [localStorage.getItem(LIKED), ...USUAL].find((name) => names.includes(name));
  if (!names.includes(attribute)) attribute = liked || names[0] || null;
  const values = points().map((one) => one.values[attribute]).filter((value) => typeof value === "number").sort((a, b) => a - b);
  range = values.length ? [values[Math.floor(values.length * 0.02)], values[Math.ceil(values.length * 0.98) - 1]] : [0, 1];
  drawTools(names);
  dirty = true;
}

function drawCells() {
  cells.clearLayers();
  const found = visible.cells ? (pastAt ? state.past?.cells : state.cells) || [] : [], more = visible.cells && (pastAt ? state.past?.more : state.cellsMore);
  $("cells-more").textContent = more ? `and ${count(more)} cells with fewer` : "";
  const most = Math.max(1, ...found.map(([, readings]) => readings));
  const colour = token("--cell");
  for (const [, readings, corners] of found) {
    const share = Math.sqrt(readings / most);
    L.polygon(corners, { pane: "cells", color: colour, weight: 1, opacity: 0.25 + 0.4 * share, fillColor: colour, fillOpacity: 0.06 + 0.34 * share })
      .bindTooltip(`${count(readings)} readings in ten minutes`, { sticky: true })
      .addTo(cells);
  }
}

function drawBrokers() {
  brokers.clearLayers();
  if (!visible.brokers) return;
  for (const one of state.brokers) {
    if (one.place?.lat === undefined) continue;
    const place = [one.place.lat, one.place.long];
    if (one.place.radius) L.circle(place, { pane: "brokers", radius: one.place.radius, color: token("--broker"), weight: 1.2, dashArray: "4 4", fill: false, interactive: false }).addTo(brokers);
    const label = `${one.broker}: ${one.away ? "away" : `${count(one.sources)} sources, ${count(one.filters)} active filters`}`;
    const mark = h("span", { class: "broker-mark", dataset: { away: String(one.away) } }, icon("router"));
    L.marker(place, { pane: "brokers", icon: L.divIcon({ html: mark, className: "", iconSize: [26, 26] }), title: label, alt: label, keyboard: false })
      .bindTooltip(label)
      .addTo(brokers);
  }
}

// ---- Around it

function makeTools() {
  const toggle = (name, label) =>
    h("label", { class: "check" }, h("input", { type: "checkbox", checked: true, onchange: (event) => { visible[name] = event.target.checked; redraw(); } }), label);
  $("map-tools").append(
    h("label", { class: "field-inline" }, "Colour by", h("select", { id: "colour-by", onchange: (event) => { attribute = event.target.value; localStorage.setItem(LIKED, attribute); measure(); } })),
    h("div", { id: "legend", class: "legend" }),
    h("ul", { class: "legend", "aria-label": "What the dots mean" }, MARKS.map(([does, what]) => h("li", {}, h("span", { class: "mark", dataset: { does } }), what))),
    toggle("cells", "Reading density"),
    h("span", { id: "cells-more", class: "note" }),
    toggle("brokers", "Mobile brokers"));
}

function drawTools(names) {
  $("map-tools").dataset.values = names.length ? "some" : "none";
  const select = $("colour-by"), known = [...select.options].map((option) => option.value).join();
  if (known !== names.join()) select.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
  if (attribute) select.value = attribute;
  const ramped = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 0.999].map(ramp).join()})`;
  $("legend").replaceChildren(h("span", {}, number(range[0])), h("span", { class: "legend-ramp", style: { background: ramped } }), h("span", {}, number(range[1])));
}

function drawFigures() {
  const all = [...sources.values()], placeless = all.filter((one) => one.lat === null).length;
  const does = { heard: 0, spared: 0, silent: 0 };
  for (const one of all) does[doing(one)] += 1;
  const whats = [`${count(does.heard)} sending`, does.spared && `${count(does.spared)} with nothing to tell`, does.silent && `${count(does.silent)} silent`, placeless && `${count(placeless)} without a place`];
  const activity = state.overview?.activity || [], away = state.brokers.filter((one) => one.away).length, { share, made } = spared();
  const figures = [
    figure("Sources here", count(does.heard + does.spared), all.length ? whats.filter(Boolean).join(", ") : "none known yet"),
    figure("Readings in the last minute", count(state.overview?.minute || 0), `${count(activity.reduce((sum, n) => sum + n, 0))} in the last hour`),
    figure("Mobile brokers", count(state.brokers.length - away), !state.brokers.length ? "none announced yet" : away ? `${count(away)} away` : state.brokersMore ? `and ${count(state.brokersMore)} more` : "all connected"),
    figure("Spared", made ? percent(share) : "–", made ? "of the messages were never sent" : "nothing counted yet", "good"),
  ];
  if (pastAt) {
    figures[0] = figure(`Sources at ${at(pastAt)}`, state.past ? count(state.past.points.length) : "–", "had said something in ten minutes");
    figures[1] = figure(`Readings at ${at(pastAt)}`, count(activity[slotOf(pastAt)] || 0), "in this half minute");
  }
  $("figures").replaceChildren(...figures);
}

function drawLatest() {
  const body = $("latest-body");
  if (!may("subscribe")) {
    body.replaceChildren(empty("lock", "Not for this role", "Subscribers and operators see notifications here."));
    return;
  }
  const newest = state.notes.slice(0, 5);
  if (!newest.length) body.replaceChildren(empty("notifications_none", "Nothing yet", "What your subscriptions find appears here."));
  else body.replaceChildren(h("ul", { class: "notes" }, newest.map(note)), h("a", { href: "#/notifications", class: "more" }, "All notifications"));
}

function drawSelected() {
  const body = $("selected-body"), name = state.chosen, one = name && known(name);
  if (!one) {
    const [title, text] = name ? [name, pastAt ? "It had said nothing then." : "Nobody knows of it any more."] : ["No source selected", "Choose a dot on the map, or a source in the list."];
    if (body.textContent.includes(title + text)) return;
    body.replaceChildren(empty("touch_app", title, text), h("a", { href: "#/sources", class: "more" }, "To the list"));
    return;
  }
  const rows = Object.entries(one.values).map(([name, value]) => {
    const line = typeof value === "number" ? series(one.name, name).filter(([time]) => !pastAt || time <= one.time) : [];
    return h("li", { class: "value" }, h("span", { class: "value-name" }, name), h("strong", {}, shown(value)), line.length > 1 ? spark(line, chartLabel(name, line)) : h("span"));
  });
  const when = pastAt ? at(one.time) : one.time ? ago(one.time) : "has told nothing yet";
  body.replaceChildren(
    h("p", { class: "selected-name" }, h("strong", {}, one.name), h("span", { class: "note" }, when)),
    !pastAt && doing(one) === "spared" ? h("p", { class: "spared-note" }, h("span", { class: "mark", dataset: { does: "spared" } }), `Here, with ${one.here}: measuring, and nothing to tell that anybody asked for.`) : "",
    h("ul", { class: "values" }, rows), left(one.more, "values more") || "",
    h("p", { class: "note" }, one.lat === null ? "Nobody says where it is." : `${one.lat.toFixed(5)}, ${one.long.toFixed(5)}`));
}

// ---- The hour

function makeTimeline() {
  const slider = h("input", { id: "back", type: "range", min: "0", max: String(SLOTS - 1), value: String(SLOTS - 1), "aria-label": "Look back over the last hour",
    oninput: () => (Number(slider.value) === SLOTS - 1 ? live() : lookBack(Number(slider.value))) });
  $("timeline").append(
    h("button", { id: "now", type: "button", class: "chip", "aria-pressed": "true", onclick: live }, "Live"),
    h("div", { class: "hour" }, h("canvas", { id: "hour", "aria-hidden": "true" }), slider),
    h("output", { id: "when", class: "when" }, "now"));
}

const slotOf = (time) => SLOTS - 1 - (Math.floor(now() / SLOT) - Math.floor(time / SLOT));

function lookBack(slot) {
  pastAt = (Math.floor(now() / SLOT) - (SLOTS - 1 - slot)) * SLOT;
  $("when").textContent = at(pastAt);
  $("back").setAttribute("aria-valuetext", `${at(pastAt)}, ${Math.round((now() - pastAt) / 60)} minutes ago`);
  $("now").setAttribute("aria-pressed", "false");
  askPast();
}

// The hour goes on while one looks at a time in it.
function moveOn() {
  if (!pastAt) return;
  if (slotOf(pastAt) < 0) lookBack(0);
  $("back").value = String(slotOf(pastAt));
}

// Once for all that is dragged over between two frames.
function askPast() {
  cancelAnimationFrame(asking);
  asking = requestAnimationFrame(() => { if (pastAt) say({ at: pastAt, resolution: resolution() }); });
}

function live() {
  pastAt = null;
  state.past = null;
  $("back").value = String(SLOTS - 1);
  $("when").textContent = "now";
  $("back").setAttribute("aria-valuetext", "now");
  $("now").setAttribute("aria-pressed", "true");
  redraw();
  drawFigures();
  drawSelected();
}

function drawTimeline() {
  const canvas = $("hour"), activity = state.overview?.activity;
  if (!activity || !canvas.clientWidth) return;
  const dense = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight, most = Math.max(1, ...activity);
  canvas.width = width * dense;
  canvas.height = height * dense;
  const pen = canvas.getContext("2d"), step = width / SLOTS;
  pen.scale(dense, dense);
  pen.fillStyle = token("--bars");
  activity.forEach((n, i) => { if (n) pen.fillRect(i * step, height - Math.max(2, (height - 2) * (n / most)), Math.max(1, step - 1), height); });
}
