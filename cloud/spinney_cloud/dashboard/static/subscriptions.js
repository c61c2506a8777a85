// Subscriptions: written with a check at every pause, explained, tried on the last hour, kept, changed, ended.

import { $, about, api, at, count, empty, h, icon, left, may, refill, shown } from "./dom.js";
import { on } from "./live.js";
import { note } from "./notifications.js";

const PAUSE_MS = 250, EXPLAINED = 12, SHOWN = 50, PAGE = 1000;
const EXAMPLES = ["NO2 > 40", "WHEN temperature > 25 UNTIL temperature <= 22", "TOP 3 OVER 24h BY NO2 DESC", "distance(lat, long, 45.815, 15.977) < 500 AND pm25 > 20"];
let timer = 0, asked = 0, pages = 1;

export function begin() {
  const text = h("textarea", { id: "text", rows: 3, spellcheck: "false", autocapitalize: "none", autocomplete: "off", "aria-describedby": "verdict", placeholder: EXAMPLES[0], oninput: changed, onscroll: scroll });
  $("editor").append(
    h("label", { for: "text", class: "field" }, "What do you want to be told?"),
    h("div", { class: "editor" }, h("pre", { id: "marks", "aria-hidden": "true" }), text),
    h("p", { id: "verdict", class: "verdict", role: "status" }),
    h("div", { class: "examples" }, h("span", { class: "note" }, "For example"), EXAMPLES.map((example) => h("button", { type: "button", class: "chip mono", onclick: () => { text.value = example; changed(); text.focus(); } }, example))),
    h("div", { class: "actions" },
      h("label", { class: "field-inline" }, "Name", h("input", { id: "sid", pattern: "[A-Za-z0-9_\\-]{1,64}", maxLength: 64, autocomplete: "off", placeholder: "one is made up" })),
      h("button", { id: "create", type: "button", class: "button primary", disabled: true, onclick: create }, "Create"),
      h("button", { id: "explain", type: "button", class: "button", disabled: true, onclick: () => explain(text.value) }, "Explain"),
      h("button", { id: "dry-run", type: "button", class: "button", disabled: true, onclick: () => dryRun(text.value) }, "Try on the last hour"),
      h("label", { class: "field-inline", title: "Valid readings that nobody wanted are still with the mobile brokers; they come into this answer only" }, h("input", { id: "fetch", type: "checkbox" }), "Ask mobile brokers, too")),
    h("div", { id: "outcome", "aria-live": "polite" }));
  on("link", (is) => { if (is) load(); });
  changed();
}

export const shownNow = () => load();
export { shownNow as shown };

// ---- Writing one

function changed() {
  clearTimeout(timer);
  mark(null);
  const text = $("text").value;
  ready(false);
  if (!text.trim()) {
    verdict("", "A filter (NO2 > 40), a state (WHEN … UNTIL …) or the best of a window (TOP … OVER … BY …)");
    return;
  }
  timer = setTimeout(() => check(text), PAUSE_MS);
}

async function check(text) {
  const turn = ++asked;
  try {
    const form = await api("POST", `${about.base}/check`, text, "text/plain");
    if (turn !== asked) return;
    if (!form.ok) {
      refused(form);
      return;
    }
    verdict("good", `Valid: ${form.kind}, ${form.cost === "indexed" ? "found by the index" : "every reading is looked at"}`);
    ready(true);
  } catch (error) {
    if (turn === asked) refused(error);
  }
}

function refused(error) {
  const where = error.line ? `Line ${error.line}, column ${error.column}: ` : "";
  verdict("bad", where + error.message);
  $("text").setAttribute("aria-invalid", "true");
  mark(error);
}

function verdict(tone, text) {
  $("verdict").dataset.tone = tone;
  $("verdict").textContent = text;
  if (tone !== "bad") $("text").removeAttribute("aria-invalid");
}

const ready = (is) => { for (const id of ["create", "explain", "dry-run"]) $(id).disabled = !is; };

// The place that an error names, marked behind the text.
function mark(error) {
  const text = $("text").value, marks = $("marks");
  if (!error?.line) {
    marks.textContent = text;
    return;
  }
  const lines = text.split("\n"), before = lines.slice(0, error.line - 1).reduce((sum, line) => sum + line.length + 1, 0);
  const line = [...(lines[error.line - 1] || "")], start = before + line.slice(0, error.column - 1).join("").length;
  const word = /^(\w+|\S|\s*$)/.exec(text.slice(start))?.[0] || "";
  marks.replaceChildren(text.slice(0, start), h("mark", { class: word.trim() ? "" : "end" }, word.trim() ? word : " "), text.slice(start + word.length));
  scroll();
}

function scroll() {
  $("marks").scrollTop = $("text").scrollTop;
  $("marks").scrollLeft = $("text").scrollLeft;
}

// ---- What can be done with it

async function create() {
  const sid = $("sid").value.trim();
  try {
    const made = await api("POST", "/v1/subscriptions", { subscription: $("text").value, ...(sid ? { sid } : {}) });
    $("text").value = "";
    $("sid").value = "";
    changed();
    outcome("check_circle", `${made.sid} is made`, h("p", {}, "What it finds appears in Notifications from now on."));
    load();
  } catch (error) {
    refused(error);
  }
}

function outcome(name, title, ...body) {
  $("outcome").replaceChildren(h("section", { class: "outcome" },
    h("div", { class: "outcome-head" }, icon(name), h("h3", {}, title),
      h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => $("outcome").replaceChildren() }, icon("close"))), ...body));
}

async function explain(text, where = refused) {
  try {
    const told = await api("POST", "/v1/explain", { subscription: text, last: EXPLAINED });
    if (!told.results.length) outcome("help_outline", "Nothing to explain by", h("p", {}, "No reading has come yet."));
    else outcome("help_outline", "The newest readings, judged", h("ul", { class: "plain" }, told.results.map(explained)));
  } catch (error) {
    where(error);
  }
}

const VERDICTS = { true: ["good", "matches", "true"], false: ["bad", "no match", "false"], null: ["", "unknown", "unknown"] };

function explained(result) {
  const [tone, word] = VERDICTS[result.verdict];
  return h("li", { class: "row" }, h("span", { class: "state", dataset: { is: tone } }, word),
    h("div", { class: "row-main" }, h("strong", {}, String(result.publication.source ?? "a reading")),
      h("span", { class: "note" }, result.reasons.join("; ") || "no part decides"),
      h("details", {}, h("summary", {}, "All parts"), Object.entries(result.parts).map(([name, part]) => h("div", {}, h("span", { class: "note" }, name), h("ul", { class: "parts" }, tree(part)))))));
}

function tree(part) {
  const [tone, , word] = VERDICTS[part.verdict];
  const values = Object.entries(part.values || {}).map(([name, value]) => `${name} = ${shown(value)}`).join(", ");
  return h("li", {}, h("code", {}, part.text), " ", h("span", { class: "state small", dataset: { is: tone } }, word), values ? h("span", { class: "note" }, ` ${values}`) : null,
    part.parts?.length ? h("ul", { class: "parts" }, part.parts.map(tree)) : null);
}

async function dryRun(text, where = refused, options = {}) {
  const fetch = $("fetch").checked;
  outcome("hourglass_empty", "Replaying the last hour", h("p", {}, fetch ? "Mobile brokers have five seconds to answer." : "A moment."));
  try {
    const told = await api("POST", `/v1/subscriptions?dry_run=true&last=1h&fetch=${fetch}`, { subscription: text, options });
    const omitted = Object.entries(told.left_out).map(([reason, many]) => `${count(many)} ${reason === "held" ? "" : "by "}${reason}`).join(", ");
    const since = told.since ? `${count(told.readings)} readings since ${at(told.since)}` : "no reading in the last hour";
    outcome("history", `${count(told.count)} ${told.count === 1 ? "notification" : "notifications"} it would have been`,
      h("p", { class: "note" }, since + (told.cut.length ? ` (cut short: ${told.cut.join(", ")})` : "")),
      omitted ? h("p", { class: "note" }, `Left out by its options: ${omitted}`) : null,
      told.fetched ? h("p", { class: "note", id: "fetched" }, told.fetched.text) : null,
      complete(told.completeness),
      h("ul", { class: "notes" }, told.notifications.slice(-SHOWN).reverse().map((one) => note({ ...one, sid: "it" }))), left(told.count - Math.min(SHOWN, told.notifications.length)));
  } catch (error) {
    $("outcome").replaceChildren();
    where(error);
  }
}

const COMPLETE = { complete: "good", "at least": "bad", unknown: "" };

// Whether brokers held anything back that it would have been told of, and the first reasons why that may be.
function complete(told) {
  return h("div", { class: "complete", dataset: { verdict: told.verdict } },
    h("p", {}, h("span", { class: "state", dataset: { is: COMPLETE[told.verdict] } }, told.verdict), ` ${told.text}`),
    told.reasons.length ? h("details", {}, h("summary", {}, "Why, by source and time"),
      h("ul", { class: "plain" }, told.reasons.slice(0, SHOWN).map((one) => h("li", {}, h("strong", {}, one.source ?? "all sources"), h("span", { class: "note" }, ` ${at(one.since)} to ${at(one.until)}: ${one.text}`)))),
      left(told.count - Math.min(SHOWN, told.reasons.length))) : null);
}

// ---- Those that are kept

async function load() {
  try {
    const everybody = may("operate") ? "&all_owners=true" : "", found = [];
    let told = { next: "" };
    for (let page = 0; page < pages && told.next !== null; page++) {
      told = await api("GET", `/v1/subscriptions?limit=${PAGE}${everybody}${told.next && `&after=${encodeURIComponent(told.next)}`}`);
      found.push(...told.subscriptions);
    }
    draw(found, told.next === null ? 0 : told.count - found.length);
  } catch (error) {
    $("kept-rows").replaceChildren(empty("cloud_off", "They cannot be shown now", error.message));
  }
}

function draw(subscriptions, more) {
  if (!subscriptions.length) {
    $("kept-rows").replaceChildren(empty("rule", "No subscription yet", "Write one above: it takes a line."));
    return;
  }
  const newest = [...subscriptions].sort((a, b) => b.created - a.created);
  const next = more > 0 && h("button", { type: "button", class: "button", onclick: () => { pages += 1; load(); } }, `Show ${count(Math.min(PAGE, more))} more`);
  refill($("kept-rows"), ...[h("ul", { class: "plain" }, newest.map(row)), left(more), next].filter(Boolean));
}

function row(one) {
  const owner = one.owner === about.name ? "" : `?owner=${encodeURIComponent(one.owner)}`;
  const path = (what = "") => `/v1/subscriptions/${encodeURIComponent(one.sid)}${what}${owner}`;
  const text = typeof one.subscription === "string" ? one.subscription : JSON.stringify(one.subscription);
  const act = async (method, what) => {
    try {
      await api(method, path(what));
    } catch (error) {
      outcome("error_outline", one.sid, h("p", {}, error.message));
    }
    await load();
  };
  const trouble = (error) => outcome("error_outline", one.sid, h("p", {}, error.message));
  const button = (label, action, tone = "") => h("button", { type: "button", class: `quiet ${tone}`, "aria-label": `${label} ${one.sid}`, dataset: { key: `${tone || (label === "Enable" ? "Disable" : label)} ${path()}` }, onclick: action }, label);
  return h("li", { class: "row", dataset: { sid: one.sid } },
    h("span", { class: "state", dataset: { is: one.enabled ? "good" : "" } }, one.enabled ? "active" : "disabled"),
    h("div", { class: "row-main" },
      h("div", {}, h("strong", {}, one.sid), " ", h("span", { class: "tag" }, one.kind), owner && h("span", { class: "tag" }, one.owner)),
      h("code", { class: "said" }, text)),
    h("div", { class: "row-acts" },
      button("Explain", () => explain(one.subscription, trouble)),
      button("Dry run", () => dryRun(one.subscription, trouble, one.options)),
      one.enabled ? button("Disable", () => act("POST", "/disable")) : button("Enable", () => act("POST", "/enable")),
      button("Delete", (event) => sure(event.currentTarget, () => act("DELETE")), "danger")));
}

// Ending one asks once more, in place.
function sure(button, action) {
  if (button.dataset.sure) {
    action();
    return;
  }
  button.dataset.sure = "yes";
  button.textContent = "Really delete?";
  button.addEventListener("blur", () => { delete button.dataset.sure; button.textContent = "Delete"; }, { once: true });
}
