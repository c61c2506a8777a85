// The socket, and what it has told: the newest of everything, for the views to draw when they like.

import { about, now, setNow } from "./dom.js";

// name -> {name, lat, long, time, values, more, came, here}; `time` 0: has said nothing; `here`: the mobile broker around it
export const sources = new Map();
export const state = { brokers: [], brokersMore: 0, overview: null, cells: [], cellsMore: 0, notes: [], notesMore: 0, operations: null, series: {}, past: null, chosen: null, linked: false, frames: 0 };

export const STALE_SECONDS = 900, QUIET_SECONDS = 120;
const MAX_NOTES = 200, MAX_TRAILS = 500, MAX_TRAIL = 60, TRAIL_SECONDS = 5, MAX_SERIES = 60, MAX_CHARTED = 600, SERIES_MS = 30000;
const listeners = new Map(), trails = new Map(), announced = new Map();
let socket = null, wait = 500, wanted = {}, charted = [], toAsk = [];

export function on(kind, listener) {
  listeners.set(kind, [...(listeners.get(kind) || []), listener]);
}

export function say(question) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(question));
}

// Asked anew whenever there is a new connection.
export function want(question) {
  wanted = { ...wanted, ...question };
  say(question);
}

// The hour of these sources is shown, now and as it moves on; the server tells so many at once, in turn.
export function chart(names) {
  const some = names.slice(0, MAX_CHARTED);
  if (some.join("\n") === charted.join("\n")) return;
  charted = some;
  askCharts();
}

function askCharts() {
  toAsk = [...charted];
  askSome();
}

function askSome() {
  if (toAsk.length) say({ series: toAsk.splice(0, MAX_SERIES) });
}

function tell(kind, message) {
  for (const listener of listeners.get(kind) || []) listener(message);
}

// Between the points of the hour that the server keeps: the newest few, as they came.
function follow(name, time, values) {
  if (!trails.has(name) && trails.size >= MAX_TRAILS) return;
  const trail = trails.get(name) || [];
  if (trail.length && time - trail.at(-1)[0] < TRAIL_SECONDS) return;
  trail.push([time, values]);
  trails.set(name, trail.slice(-MAX_TRAIL));
}

function isHere(name) {
  const { lat, long, here } = announced.get(name), known = sources.get(name);
  if (known?.time) known.here = here;
  else sources.set(name, { name, lat, long, time: 0, values: {}, more: 0, came: 0, here });
}

function isGone(name) {
  announced.delete(name);
  const known = sources.get(name);
  if (known?.time) known.here = undefined;
  else sources.delete(name);
}

// What a source is doing: it is heard, it is here with nothing to tell, or nobody knows of it any more.
export function doing(one) {
  const silent = now() - one.time;
  if (one.here && silent > QUIET_SECONDS) return "spared";
  return silent > STALE_SECONDS ? "silent" : "heard";
}

const takers = {
  points({ whole, items }) {
    if (whole) {
      sources.clear();
      for (const name of announced.keys()) isHere(name);
    }
    const came = performance.now();
    for (const [name, lat, long, time, values, more = 0] of items) {
      sources.set(name, { name, lat, long, time, values, more, came: whole ? 0 : came, here: announced.get(name)?.here });
      follow(name, time, values);
    }
  },
  present({ whole, items }) {
    if (whole) for (const name of [...announced.keys()]) isGone(name);
    for (const [name, lat = null, long = null, here] of items) {
      if (here === undefined) isGone(name);
      else {
        announced.set(name, { lat, long, here });
        isHere(name);
      }
    }
  },
  notes({ whole, items }) {
    const all = [...items.reverse(), ...(whole ? [] : state.notes)];
    state.notes = all.slice(0, MAX_NOTES);
    if (whole) state.notesMore = items.length < MAX_NOTES ? 0 : null; // null: nobody has counted them
    else if (state.notesMore !== null) state.notesMore += all.length - state.notes.length;
  },
  overview(message) { state.overview = message; setNow(message.now); },
  cells(message) { state.cells = message.cells; state.cellsMore = message.more; },
  brokers(message) { state.brokers = message.brokers; state.brokersMore = message.more; },
  operations(message) { state.operations = message; },
  series(message) { Object.assign(state.series, message.series); askSome(); },
  past(message) { state.past = message; },
};

function linked(is) {
  state.linked = is;
  tell("link", is);
}

// A socket that is not let in says no more than that it did not open; the page itself is led to the login.
async function isLetIn() {
  const answer = await fetch(`${about.base}/`, { redirect: "manual" }).catch(() => null);
  return answer === null || answer.ok || answer.status >= 500;
}

export function connect() {
  let isOpened = false;
  socket = new WebSocket(`${location.origin.replace("http", "ws")}${about.base}/live`);
  socket.onopen = () => {
    isOpened = true;
    wait = 500;
    linked(true);
    for (const [name, value] of Object.entries(wanted)) socket.send(JSON.stringify({ [name]: value }));
    askCharts();
  };
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    state.frames += 1;
    takers[message.kind]?.(message);
    tell(message.kind, message);
  };
  socket.onclose = async (event) => {
    linked(false);
    if (event.code === 4403 || (!isOpened && !(await isLetIn()))) {
      location.reload(); // the login page
      return;
    }
    setTimeout(connect, wait * (0.5 + Math.random()));
    wait = Math.min(2 * wait, 8000);
  };
}

setInterval(askCharts, SERIES_MS);

export const numeric = () => {
  const found = new Map();
  for (const source of sources.values()) {
    for (const [name, value] of Object.entries(source.values)) if (typeof value === "number") found.set(name, (found.get(name) || 0) + 1);
  }
  return [...found].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([name]) => name);
};

export const series = (name, attribute) => {
  const kept = state.series[name] || [], trail = trails.get(name) || [], newest = sources.get(name);
  const begun = trail[0]?.[0] ?? Infinity, points = [...kept.filter(([time]) => time < begun), ...trail];
  if (newest && newest.time > (points.at(-1)?.[0] ?? 0)) points.push([newest.time, newest.values]);
  return points.filter(([time, values]) => time > now() - 3600 && typeof values[attribute] === "number").map(([time, values]) => [time, values[attribute]]);
};
