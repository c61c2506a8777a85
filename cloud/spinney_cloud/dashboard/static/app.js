// Starts when NiceGUI has made the shell: the ways about the page, the theme, the link's state, the views.

import { $, about, may } from "./dom.js";
import { connect, on, state } from "./live.js";

const drawers = {
  map: () => import("./map.js"),
  sources: () => import("./sources.js"),
  subscriptions: () => import("./subscriptions.js"),
  notifications: () => import("./notifications.js"),
  savings: () => import("./savings.js"),
  health: () => import("./health.js"),
};

function shellIsThere() {
  return new Promise((resolve) => {
    const look = () => ($("views") ? resolve() : requestAnimationFrame(look));
    look();
  });
}

const views = () => [...document.querySelectorAll("#views > section")].map((section) => section.id.slice(5));
const begun = {};

async function show(name, byHand) {
  for (const view of views()) $(`view-${view}`).hidden = view !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = $(`title-${name}`);
  document.title = `${title.textContent} · Spinney`;
  begun[name] ??= drawers[name]().then((view) => (view.begin(), view));
  (await begun[name]).shown?.();
  if (byHand) title.focus({ preventScroll: true });
}

const chosen = () => (views().includes(location.hash.slice(2)) ? location.hash.slice(2) : views()[0]);

function link(is) {
  const pill = $("link");
  pill.dataset.state = is ? "live" : "lost";
  pill.textContent = is ? "live" : "reconnecting";
}

// Something is being set up beside the cloud: what, and how far it is. A screen reader is told when that begins and ends.
function setUp({ setup }) {
  const bar = $("setup");
  if (bar.hidden === Boolean(setup)) $("setup-said").textContent = setup ? "The pipeline is being set up" : "The pipeline is set up";
  bar.hidden = !setup;
  if (!setup) return;
  $("setup-text").textContent = `Pipeline: ${setup.text}`;
  const share = $("setup-share");
  if (setup.share === null) share.removeAttribute("value");
  else share.value = setup.share;
}

await shellIsThere();
document.documentElement.lang = "en";
addEventListener("hashchange", () => show(chosen(), true));
$("theme").addEventListener("click", () => globalThis.switchTheme());
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("views").focus(); });
on("link", link);
on("operations", setUp);
connect();
await show(chosen(), false);
globalThis.spinney = { state, about, may }; // for looking at it in the browser's console
