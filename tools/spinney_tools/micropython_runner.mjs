// Runs steps of a script on MicroPython: reads {module, steps, heap, files: {path: base64}} from stdin.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const job = JSON.parse(readFileSync(0, "utf-8"));
const { loadMicroPython } = await import(pathToFileURL(job.module).href);
const mp = await loadMicroPython({ heapsize: job.heap, linebuffer: true, stdout: (line) => console.log(line) });
for (const [path, content] of Object.entries(job.files)) {
  const folders = path.split("/").slice(1, -1);
  for (let depth = 1; depth <= folders.length; depth++) {
    const folder = "/" + folders.slice(0, depth).join("/");
    if (!mp.FS.analyzePath(folder).exists) mp.FS.mkdir(folder);
  }
  mp.FS.writeFile(path, Buffer.from(content, "base64"));
}
try {
  mp.runPython("import sys\nsys.path.insert(0, '/lib')");
  for (const step of job.steps) mp.runPython(step);
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
