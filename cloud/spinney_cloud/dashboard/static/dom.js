// Elements, numbers and times, made in few words. Nothing that others have said ever becomes markup.

export const about = JSON.parse(document.querySelector("meta[name=spinney]").content);
export const $ = (id) => document.getElementById(id);
export const may = (right) => about.rights.includes(right);

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "style") for (const [rule, set] of Object.entries(value)) element.style.setProperty(rule, set);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function svg(tag, props = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const clockSeconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const count = (n) => (n < 100000 ? whole.format(n) : compact.format(n));
export const number = (n) => short.format(n);
export const shown = (value) =>
  typeof value === "number" ? number(value) : typeof value === "boolean" ? (value ? "yes" : "no") : String(value ?? "–");
export const at = (seconds) => clock.format(seconds * 1000);
export const atSeconds = (seconds) => clockSeconds.format(seconds * 1000);
export const percent = (part) => `${part > 0 && part < 0.1 ? (100 * part).toFixed(1) : Math.round(100 * part)} %`;

export function bytes(n) {
  for (const [limit, unit] of [[1e3, "B"], [1e6, "kB"], [1e9, "MB"]]) {
    if (n < limit) return `${short.format(Number((n / (limit / 1e3)).toPrecision(3)))} ${unit}`;
  }
  return `${short.format(Number((n / 1e9).toPrecision(3)))} GB`;
}

export function ago(seconds) {
  const passed = Math.max(0, now() - seconds);
  if (passed < 5) return "just now";
  if (passed < 90) return `${Math.round(passed)} s ago`;
  if (passed < 5400) return `${Math.round(passed / 60)} min ago`;
  return passed < 172800 ? `${Math.round(passed / 3600)} h ago` : `${Math.round(passed / 86400)} days ago`;
}

let ahead = 0; // of this machine's clock is the server's
export const now = () => Date.now() / 1000 + ahead;
export const setNow = (seconds) => { ahead = seconds - Date.now() / 1000; };

export const empty = (icon, title, text) =>
  h("div", { class: "empty" }, h("i", { class: "material-icons", "aria-hidden": "true" }, icon), h("strong", {}, title), h("p", {}, text));

// What changes is drawn anew; who stands on a part of it by keyboard, or has opened one, finds it again by its key.
const keyOf = (element) => element.dataset.key || element.getAttribute("aria-label") || element.textContent;
export function refill(place, ...children) {
  const active = place.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  const open = new Set([...place.querySelectorAll("details[open]")].map(keyOf));
  place.replaceChildren(...children);
  for (const one of place.querySelectorAll("details")) one.open = open.has(keyOf(one));
  if (active !== null) [...place.querySelectorAll("a, button, summary")].find((one) => keyOf(one) === active)?.focus({ preventScroll: true });
}

// Below a list that is cut: how much of it is left out.
export const left = (n, what = "more") => n > 0 && h("p", { class: "note left-out" }, `and ${count(n)} ${what}`);

export const icon = (name) => h("i", { class: "material-icons", "aria-hidden": "true" }, name);

export function figure(label, value, note = "", tone = "") {
  return h("div", { class: "figure", dataset: { tone } },
    h("span", { class: "figure-label" }, label), h("span", { class: "figure-value" }, value), h("span", { class: "figure-note" }, note));
}

// A small chart: a line, its area, and the last point. `points` are [seconds, number].
export function spark(points, label, { width = 160, height = 36, from, to } = {}) {
  const drawing = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (points.length < 2) return drawing;
  const times = points.map((p) => p[0]), values = points.map((p) => p[1]);
  const left = from ?? times[0], right = to ?? times.at(-1), low = Math.min(...values), high = Math.max(...values);
  const x = (t) => (width * (t - left)) / (right - left || 1);
  const y = (v) => height - 3 - ((height - 6) * (v - low)) / (high - low || 1);
  const line = points.map((p) => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(" ");
  drawing.append(
    svg("polygon", { class: "spark-area", points: `${x(times[0]).toFixed(1)},${height} ${line} ${x(times.at(-1)).toFixed(1)},${height}` }),
    svg("polyline", { class: "spark-line", points: line, "vector-effect": "non-scaling-stroke" }));
  return drawing;
}

export function chartLabel(name, points) {
  if (points.length < 2) return `${name}: too few readings for a chart`;
  const values = points.map((p) => p[1]);
  return `${name} since ${at(points[0][0])}: from ${number(Math.min(...values))} to ${number(Math.max(...values))}, now ${number(values.at(-1))}`;
}

// The API: what it answers, or an error with all that it says of it.
export async function api(method, path, body, type = "application/json") {
  const options = { method, headers: body === undefined ? {} : { "content-type": type } };
  if (body !== undefined) options.body = type === "application/json" ? JSON.stringify(body) : body;
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw Object.assign(new Error("The server cannot be reached; trying again when it is back."), { status: 0 });
  }
  if (answer.status === 401) {
    location.assign(`${about.base}/login`);
    throw new Error("Log in again.");
  }
  const told = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(told.detail || `The server answers ${answer.status}.`), told);
  return told;
}
