// Put into a page before its own scripts: how long each of its frames took, and its scripts within each.

(() => {
  const found = { frames: [], work: [], longest: 0 };
  let last = 0, work = 0, inside = false;

  const timed = (call) => typeof call !== "function" ? call : function (...given) {
    if (inside) return call.apply(this, given);
    const began = performance.now();
    inside = true;
    try {
      return call.apply(this, given);
    } finally {
      inside = false;
      work += performance.now() - began;
    }
  };

  for (const name of ["requestAnimationFrame", "setTimeout"]) {
    const before = globalThis[name];
    globalThis[name] = (call, ...more) => before(timed(call), ...more);
  }
  const wrapped = new WeakMap(), { addEventListener: add, removeEventListener: remove } = EventTarget.prototype;
  EventTarget.prototype.addEventListener = function (kind, call, ...more) {
    if (typeof call === "function" && !wrapped.has(call)) wrapped.set(call, timed(call));
    return add.call(this, kind, wrapped.get(call) ?? call, ...more);
  };
  EventTarget.prototype.removeEventListener = function (kind, call, ...more) {
    return remove.call(this, kind, wrapped.get(call) ?? call, ...more);
  };
  const { set } = Object.getOwnPropertyDescriptor(WebSocket.prototype, "onmessage");
  Object.defineProperty(WebSocket.prototype, "onmessage", { set(call) { set.call(this, timed(call)); } });

  new PerformanceObserver((list) => {
    for (const task of list.getEntries()) found.longest = Math.max(found.longest, task.duration);
  }).observe({ type: "longtask" });

  const frame = (time) => {
    if (last) {
      found.frames.push(time - last);
      found.work.push(work);
    }
    last = time;
    work = 0;
    ours(frame);
  };
  const ours = requestAnimationFrame; // what it does is next to nothing
  ours(frame);

  globalThis.framesUntilNow = () => {
    const until = { ...found, frames: found.frames.splice(0), work: found.work.splice(0) };
    found.longest = 0;
    return until;
  };
})();
