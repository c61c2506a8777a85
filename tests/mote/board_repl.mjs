// MicroPython's WebAssembly build as a board behind stdin and stdout: files that outlive a reset, boot.py and main.py,
// raw REPL with raw paste as on a board. The job is {module, files: {path: base64}, disguise} in argv[2].
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const job = JSON.parse(readFileSync(process.argv[2], "utf-8"));
const { loadMicroPython } = await import(pathToFileURL(job.module).href);
const WINDOW = 128; // bytes of a raw paste between two signs that more may come
const NOT_OURS = ["/dev", "/proc", "/home", "/tmp"];
const [CTRL_A, CTRL_B, CTRL_C, CTRL_D, CTRL_E] = [1, 2, 3, 4, 5];

let files = new Map(Object.entries(job.files).map(([path, text]) => [path, Buffer.from(text, "base64")]));
let mp = null;
let out = [];
let raw = false;
let asked = []; // the beginning of a raw paste: Ctrl-E, A, Ctrl-A
let paste = null;
let resetting = false;
globalThis.boardReset = () => (resetting = true);

function keep(folder) {
  for (const name of mp.FS.readdir(folder || "/").filter((name) => name !== "." && name !== "..")) {
    const path = `${folder}/${name}`;
    if (NOT_OURS.includes(path)) continue;
    if (mp.FS.isDir(mp.FS.stat(path).mode)) keep(path);
    else files.set(path, Buffer.from(mp.FS.readFile(path)));
  }
}

function restore() {
  for (const [path, content] of files) {
    const folders = path.split("/").slice(1, -1);
    for (let depth = 1; depth <= folders.length; depth++) {
      const folder = "/" + folders.slice(0, depth).join("/");
      if (!mp.FS.analyzePath(folder).exists) mp.FS.mkdir(folder);
    }
    mp.FS.writeFile(path, content);
  }
}

function execute(script) {
  if (!mp.FS.analyzePath(script).exists) return;
  try {
    mp.runPython(mp.FS.readFile(script, { encoding: "utf8" }));
  } catch (error) {
    out.push(...Buffer.from(`${error.message}\r\n`));
  }
}

async function start(words) {
  if (mp) {
    files = new Map();
    keep("");
  }
  resetting = false;
  paste = null;
  mp = await loadMicroPython({ heapsize: 4 << 20, linebuffer: false, stdout: (bytes) => out.push(...bytes) });
  restore();
  mp.runPython(job.disguise);
  out.push(...Buffer.from(words));
  execute("/boot.py");
  if (!raw) execute("/main.py");
  if (resetting) return start("");
  mp.replInit();
  if (raw) type(CTRL_A);
}

const type = (byte) => mp.replProcessChar(byte);

async function feed(bytes) {
  for (const byte of bytes) {
    if (type(byte)) {
      raw = raw && !resetting;
      await start(resetting ? "" : "MPY: soft reboot\r\n");
      return;
    }
  }
}

async function pasted(byte) {
  if (byte === CTRL_C) {
    paste = null;
    out.push(CTRL_D, ...Buffer.from("\x04>"));
  } else if (byte === CTRL_D) {
    const script = paste;
    paste = null;
    out.push(CTRL_D);
    const before = out.length;
    await feed([...script, CTRL_D]);
    if (out.slice(before, before + 2).join() === "79,75") out.splice(before, 2); // the OK of a raw REPL
  } else {
    paste.push(byte);
    if (paste.length % WINDOW === 0) out.push(CTRL_A);
  }
}

async function take(byte) {
  if (paste) return pasted(byte);
  if (raw && byte === [CTRL_E, 0x41, CTRL_A][asked.length]) {
    asked.push(byte);
    if (asked.length < 3) return;
    asked = [];
    paste = [];
    out.push(...Buffer.from("R\x01"), WINDOW & 0xff, WINDOW >> 8, CTRL_A);
    return;
  }
  const held = asked;
  asked = [];
  if (byte === CTRL_A) raw = true;
  if (byte === CTRL_B) raw = false;
  await feed([...held, byte]);
}

function flush() {
  const data = Buffer.from(out);
  out = [];
  if (data.length) process.stdout.write(data);
}

let last = start("").then(flush);
process.stdin.on("data", (data) => {
  last = last.then(async () => {
    for (const byte of data) await take(byte);
    flush();
  });
});
process.stdin.on("end", () => process.exit(0));
