// What the map is made of: land and graticule that need no tiles, and sources, all drawn on canvases.

import { leaflet as L } from "nicegui-leaflet";
import { about } from "./dom.js";
import { doing } from "./live.js";

const GLOW_MS = 900;
const RADIUS = 5.5, CORE = 2.2;
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 45], APART = 110; // of the graticule: degrees, pixels
const RAMP = [[20, 130, 160], [64, 180, 130], [240, 185, 60], [232, 120, 60], [200, 40, 80]]; // low to high

export const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function ramp(part) {
  const place = Math.max(0, Math.min(0.9999, part)) * (RAMP.length - 1), i = Math.floor(place), rest = place - i;
  return `rgb(${RAMP[i].map((c, k) => Math.round(c + rest * (RAMP[i + 1][k] - c))).join(",")})`;
}

// A layer that is one canvas over the whole map, drawn anew when it moves or is told to.
const Canvas = L.Layer.extend({
  onAdd(map) {
    this.map = map;
    this.canvas = L.DomUtil.create("canvas", "leaflet-zoom-hide");
    this.canvas.setAttribute("aria-hidden", "true");
    map.getPane(this.options.pane).append(this.canvas);
    map.on("moveend zoomend resize", this.place, this);
    this.place();
  },
  onRemove(map) {
    map.off("moveend zoomend resize", this.place, this);
    this.canvas.remove();
  },
  place() {
    const size = this.map.getSize(), dense = devicePixelRatio || 1, margin = Math.round(size.x * 0.3);
    this.margin = margin;
    this.canvas.width = (size.x + 2 * margin) * dense;
    this.canvas.height = (size.y + 2 * margin) * dense;
    this.canvas.style.width = `${size.x + 2 * margin}px`;
    this.canvas.style.height = `${size.y + 2 * margin}px`;
    this.origin = this.map.containerPointToLayerPoint([0, 0]); // the canvas goes along when the map is dragged, and is drawn on
    L.DomUtil.setPosition(this.canvas, this.origin.subtract([margin, margin]));
    this.pen = this.canvas.getContext("2d");
    this.pen.setTransform(dense, 0, 0, dense, margin * dense, margin * dense);
    this.draw();
  },
  clear() {
    this.pen.clearRect(-this.margin, -this.margin, this.canvas.width, this.canvas.height);
  },
  at(lat, long) {
    return this.map.latLngToLayerPoint([lat, long]).subtract(this.origin);
  },
});

export const Land = Canvas.extend({
  options: { pane: "land" },
  rings: [],
  async load() {
    const { rings, scale } = await (await fetch(`${about.base}/static/land.json`)).json();
    this.rings = rings.map((steps) => {
      const points = [];
      for (let i = 0, long = 0, lat = 0; i < steps.length; i += 2) {
        long += steps[i];
        lat += steps[i + 1];
        points.push([lat / scale, long / scale]);
      }
      const longs = points.map(([, long]) => long);
      return { points, west: Math.min(...longs), east: Math.max(...longs) };
    });
    if (this.map) this.draw();
  },
  draw() {
    this.clear();
    const pen = this.pen, seen = this.map.getBounds().pad(0.4);
    pen.beginPath();
    for (const { points, west, east } of this.rings) {
      for (const turn of [-360, 0, 360]) {
        if (west + turn > seen.getEast() || east + turn < seen.getWest()) continue;
        points.forEach(([lat, long], i) => {
          const { x, y } = this.at(Math.max(-85, lat), long + turn);
          if (i) pen.lineTo(x, y); else pen.moveTo(x, y);
        });
        pen.closePath();
      }
    }
    pen.fillStyle = token("--land");
    pen.fill("evenodd");
    pen.strokeStyle = token("--coast");
    pen.lineWidth = 0.8;
    pen.stroke();
    this.graticule(seen);
  },
  graticule(seen) {
    const pen = this.pen, each = (this.at(seen.getCenter().lat, 1).x - this.at(seen.getCenter().lat, 0).x);
    const step = STEPS.find((degrees) => degrees * each > APART) || 45;
    const digits = Math.max(0, Math.ceil(-Math.log10(step)));
    pen.strokeStyle = token("--grid");
    pen.fillStyle = token("--grid-text");
    pen.lineWidth = 1;
    pen.font = "10.5px system-ui, sans-serif";
    pen.beginPath();
    for (let long = Math.ceil(seen.getWest() / step) * step; long < seen.getEast(); long += step) {
      const { x } = this.at(seen.getCenter().lat, long);
      pen.moveTo(x, -this.margin);
      pen.lineTo(x, this.canvas.height);
      pen.fillText(`${Math.abs(long).toFixed(digits)}° ${long < 0 ? "W" : "E"}`, x + 4, 13);
    }
    for (let lat = Math.ceil(Math.max(-85, seen.getSouth()) / step) * step; lat < Math.min(85, seen.getNorth()); lat += step) {
      const { y } = this.at(lat, seen.getCenter().lng);
      pen.moveTo(-this.margin, y);
      pen.lineTo(this.canvas.width, y);
      if (y > 34) pen.fillText(`${Math.abs(lat).toFixed(digits)}° ${lat < 0 ? "S" : "N"}`, this.map.getSize().x - 58, y - 4);
    }
    pen.stroke();
  },
});

export const Dots = Canvas.extend({
  options: { pane: "dots" },
  points: [], // {name, lat, long, time, values, more, came, here}
  colour: () => null,
  chosen: null,
  glowing: false,
  draw() {
    this.clear();
    const pen = this.pen, size = this.map.getSize(), present = performance.now();
    const rim = token("--dot-rim"), stale = token("--stale"), spared = token("--spared"), accent = token("--accent"), hollow = token("--panel");
    this.spots = [];
    this.glowing = false;
    for (const one of this.points) {
      if (one.lat === null) continue;
      const { x, y } = this.at(one.lat, one.long);
      if (x < -this.margin || y < -this.margin || x > size.x + this.margin || y > size.y + this.margin) continue;
      this.spots.push([x, y, one.name]);
      const does = this.past ? "heard" : doing(one), silent = does === "silent", colour = silent ? stale : this.colour(one) || accent;
      const glow = one.came && !this.past ? 1 - (present - one.came) / GLOW_MS : 0;
      if (glow > 0) {
        this.glowing = true;
        pen.globalAlpha = 0.35 * glow;
        pen.fillStyle = colour;
        pen.beginPath();
        pen.arc(x, y, RADIUS + 9 * (1 - glow), 0, 7);
        pen.fill();
        pen.globalAlpha = 1;
      }
      pen.beginPath();
      pen.arc(x, y, RADIUS, 0, 7);
      pen.fillStyle = does === "heard" ? colour : hollow;
      pen.fill();
      pen.lineWidth = does === "spared" ? 2 : 1.5;
      pen.strokeStyle = { heard: rim, spared, silent: stale }[does];
      pen.stroke();
      if (does === "spared") {
        pen.beginPath();
        pen.arc(x, y, CORE, 0, 7);
        pen.fillStyle = one.time ? colour : spared; // of what it told last
        pen.fill();
      }
      if (one.name === this.chosen) {
        pen.beginPath();
        pen.arc(x, y, RADIUS + 5, 0, 7);
        pen.lineWidth = 2.5;
        pen.strokeStyle = accent;
        pen.stroke();
      }
    }
  },
  nearest(layerPoint, within = 14) {
    const { x, y } = layerPoint.subtract(this.origin);
    let best = null, least = within ** 2;
    for (const [px, py, name] of this.spots || []) {
      const away = (px - x) ** 2 + (py - y) ** 2;
      if (away < least) [best, least] = [name, away];
    }
    return best;
  },
});

export { L };
