// Sent against spared, tier by tier.

import { $, bytes, count, empty, figure, h, left, number, percent } from "./dom.js";
import { on, state } from "./live.js";

// Estimates of what sending costs a battery, in microcoulombs: of a message, and of each of its bytes.
const UC_PER_MAH = 3_600_000;
const MOTE = { message: 194, byte: 6.29, size: 31 }; // one advert of an ESP32-C3 on three channels, by the simulator's model
const MOBILE = { message: 1200, byte: 1 }; // a packet over Wi-Fi: 10 ms at 120 mA

const sum = (name) => state.brokers.reduce((total, one) => total + (one.counts?.[name] || 0), 0);
const charge = (cost, messages, size) => (messages * cost.message + size * cost.byte) / UC_PER_MAH;

// Of each tier: messages, bytes and mAh, sent and spared.
export function tiers() {
  const found = [];
  const motes = [sum("motes_sent"), sum("motes_spared")];
  found.push({ name: "Motes", icon: "memory", what: "Samples whose values a mote transmitted, as events or in adverts that anyone hears, and those that its filters kept off the air", messages: motes,
    bytes: motes.map((n) => n * MOTE.size), charge: motes.map((n) => charge(MOTE, n, n * MOTE.size)) });
  const mobile = [sum("sent"), sum("spared")], size = [sum("bytes_sent"), sum("bytes_spared")];
  found.push({ name: "Mobile brokers", icon: "router", what: "Readings that nobody upstream had asked for", messages: mobile,
    bytes: size, charge: mobile.map((n, i) => charge(MOBILE, n, size[i])) });
  const counts = state.operations?.counts;
  if (counts) {
    const readings = Math.max(0, (counts.readings || 0) - (counts.duplicates || 0)), wanted = Math.min(readings, counts.matched || 0);
    const each = counts.received ? (counts.bytes || 0) / counts.received : 0, cloud = [wanted, readings - wanted];
    found.push({ name: "Cloud", icon: "cloud", what: "Readings that a subscription asked for, and those that nobody asked for", messages: cloud, bytes: cloud.map((n) => n * each), charge: null,
      more: `${count(counts.notes || 0)} notifications came of those that were asked for` });
  }
  return found;
}

export function spared() {
  const below = tiers().slice(0, 2), sent = below[1].messages[0], kept = below[0].messages[1] + below[1].messages[1];
  return { made: sent + kept, share: sent + kept ? kept / (sent + kept) : 0 };
}

export function begin() {
  on("brokers", draw);
  on("operations", draw);
  $("counted-body").append(
    h("p", {}, "Counts are those that mobile brokers, motes and cloud have kept since each was started. A sample that a mote's filters held back but that it broadcast, as in the open, counts as sent; one that its radio lost counts as spared."),
    h("p", {}, `mAh are estimates: ${MOTE.message} µC for a mote's advert and ${MOTE.byte} µC for each of its ${MOTE.size} bytes (an ESP32-C3, modelled), one advert for a sample: what a mote that sleeps spares by being awake for less is not in them; ${MOBILE.message} µC for a mobile broker's packet over Wi-Fi and ${MOBILE.byte} µC for each byte. The cloud has no battery.`));
  draw();
}

function draw() {
  const all = tiers(), { made, share } = spared();
  const saved = all.slice(0, 2).reduce((total, tier) => total + tier.bytes[1], 0), power = all.slice(0, 2).reduce((total, tier) => total + tier.charge[1], 0);
  $("savings-sum").replaceChildren(
    figure("Spared below the cloud", made ? percent(share) : "–", made ? `of ${count(made)} messages` : "nothing counted yet", "good"),
    figure("Bytes spared", bytes(saved), "on radio and uplink"),
    figure("Battery spared", `${number(Number(power.toPrecision(3)))} mAh`, "estimated"),
    left(state.brokersMore, "mobile brokers more, which are not counted in here") || "");
  $("tiers").replaceChildren(...all.map(card));
}

function card(tier) {
  const rows = [["Messages", tier.messages, count], ["Bytes", tier.bytes, bytes], ["Battery", tier.charge, (n) => `${number(Number(n.toPrecision(2)))} mAh`]];
  const none = !(tier.messages[0] + tier.messages[1]);
  return h("article", { class: "panel tier", "aria-label": tier.name },
    h("div", { class: "panel-head" }, h("h2", {}, h("i", { class: "material-icons", "aria-hidden": "true" }, tier.icon), tier.name), h("p", { class: "note" }, tier.what)),
    h("div", { class: "body" }, none ? empty("hourglass_empty", "Nothing counted yet", "Figures appear with the first readings.") : [...rows.map((row) => bar(...row)), tier.more && h("p", { class: "note" }, tier.more)]));
}

function bar(name, pair, unit) {
  if (!pair) return h("div", { class: "share" }, h("div", { class: "share-head" }, h("span", {}, name), h("span", { class: "note" }, "runs on mains")));
  const [sent, kept] = pair, part = sent + kept ? kept / (sent + kept) : 0;
  return h("div", { class: "share" },
    h("div", { class: "share-head" }, h("span", {}, name), h("strong", {}, `${percent(part)} spared`)),
    h("div", { class: "share-bar", role: "img", "aria-label": `${name}: ${unit(sent)} sent, ${unit(kept)} spared` }, h("span", { class: "share-sent", style: { width: `${100 * (1 - part)}%` } })),
    h("div", { class: "share-head note" }, h("span", {}, `${unit(sent)} sent`), h("span", {}, `${unit(kept)} spared`)));
}
