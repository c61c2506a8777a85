// The socket, and what it has told: the newest of everything, for the views to draw when they like.

import { about, now, setNow } from "./dom.js";

export const sources = new Map(); // name -> {name, lat, long, time, values, more, came}
export const state = { brokers: [], brokersMore: 0, overview: null, cells: [], cellsMore: 0, notes: [], notesMore: 0, operations: null, series: {}, past: null, linked: false, frames: 0 };

const MAX_NOTES = 200, MAX_TRAILS = 500, MAX_TRAIL = 60, TRAIL_SECONDS = 5;
const listeners = new Map(), trails = new Map();
let socket = null, wait = 500, wanted = {};

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

const takers = {
  points({ whole, items }) {
    if (whole) sources.clear();
    const came = performance.now();
    for (const [name, lat, long, time, values, more = 0] of items) {
      sources.set(name, { name, lat, long, time, values, more, came: whole ? 0 : came });
      follow(name, time, values);
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
  series(message) { Object.assign(state.series, message.series); },
  past(message) { state.past = message; },
};

function linked(is) {
  state.linked = is;
  tell("link", is);
}

export function connect() {
  socket = new WebSocket(`${location.origin.replace("http", "ws")}${about.base}/live`);
  socket.onopen = () => {
    wait = 500;
    linked(true);
    for (const [name, value] of Object.entries(wanted)) socket.send(JSON.stringify({ [name]: value }));
  };
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    state.frames += 1;
    takers[message.kind]?.(message);
    tell(message.kind, message);
  };
  socket.onclose = (event) => {
    linked(false);
    if (event.code === 4403) location.reload(); // the login page, if one is no longer let in
    setTimeout(connect, wait * (0.5 + Math.random()));
    wait = Math.min(2 * wait, 8000);
  };
}

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
