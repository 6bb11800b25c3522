// Uploads with progress. They go on while you look at other views.

import { ApiError, credentials } from "../api.js";
import { notify } from "../dialog.js";
import { bytes, count } from "../format.js";
import { html, signal } from "../html.js";
import { address } from "../router.js";

const AT_ONCE = 2; // a browser has only six connections for a host
const SHOWN = 50;
const AFTER_MS = 300;

/** [{id, url, name, size, sent, state, error, file, project}]; `state`: waiting, sending, done, exists, failed. */
const uploads = signal([]);
const requests = new Map();
const finished = new Set();
let counted = 0;
let telling = 0;

/** Calls `listener(url)` a moment after objects were uploaded. Returns what ends it. */
export function onUploaded(listener) {
  finished.add(listener);
  return () => finished.delete(listener);
}

/** `files`: [{file, path}]; each is written to `prefix + path`. */
export function upload(files, prefix, project) {
  const added = files.map(({ file, path }) => ({
    id: (counted += 1), url: prefix + path, name: path, size: file.size, sent: 0, state: "waiting", error: "", replace: false, file, project,
  }));
  uploads.value = [...uploads.value.filter((one) => one.state !== "done"), ...added];
  next();
}

function change(id, changes) {
  uploads.value = uploads.value.map((one) => (one.id === id ? { ...one, ...changes } : one));
}

function next() {
  const free = AT_ONCE - uploads.value.filter((one) => one.state === "sending").length;
  for (const one of uploads.value.filter(({ state }) => state === "waiting").slice(0, Math.max(0, free))) {
    change(one.id, { state: "sending", sent: 0 });
    send(one).then(
      () => {
        change(one.id, { state: "done", sent: one.size });
        tell(one.url);
        next();
      },
      (error) => {
        if (error) change(one.id, error.status === 409 && !one.replace ? { state: "exists" } : { state: "failed", error: error.message });
        next();
      },
    );
  }
}

function tell(url) {
  clearTimeout(telling);
  telling = setTimeout(() => {
    for (const listener of finished) listener(url);
    const { length } = uploads.value.filter((one) => one.state === "done");
    if (!active()) notify(`Uploaded ${count(length, "object")}`);
  }, AFTER_MS);
}

/** fetch() does not tell how much was sent. Rejects with null if it was cancelled. */
function send({ id, url, file, project, replace }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    requests.set(id, request);
    request.open("PUT", address("/turnout/v1/object", { url, project }));
    for (const [name, value] of Object.entries(credentials())) request.setRequestHeader(name, value);
    if (!replace) request.setRequestHeader("If-None-Match", "*");
    request.setRequestHeader("Content-Type", file.type || "application/octet-stream");
    let drawn = 0;
    request.upload.onprogress = ({ loaded, timeStamp }) => {
      if (timeStamp - drawn < 100) return;
      drawn = timeStamp;
      change(id, { sent: loaded });
    };
    request.onload = () => {
      if (request.status === 200) return resolve();
      let error = {};
      try {
        ({ error } = JSON.parse(request.responseText));
      } catch {
        // not an answer of the API; its status is all that is known
      }
      return reject(new ApiError(request.status, error.code, error.message ?? `The service answered ${request.status}`));
    };
    request.onerror = () => reject(new ApiError(0, "Unreachable", "The connection broke, or the file cannot be read"));
    request.onabort = () => reject(null);
    request.onloadend = () => requests.delete(id);
    request.send(file);
  });
}

function cancel(id) {
  requests.get(id)?.abort();
  uploads.value = uploads.value.filter((one) => one.id !== id);
  next();
}

function again(id, replace) {
  change(id, { state: "waiting", error: "", replace });
  next();
}

const active = () => uploads.value.some(({ state }) => state === "waiting" || state === "sending");

addEventListener("beforeunload", (event) => {
  if (active()) event.preventDefault();
});

/** The list of uploads, while there are any. */
export function Uploads() {
  const all = uploads.value;
  if (!all.length) return null;
  const of = (state) => all.filter((one) => one.state === state);
  const exist = of("exists");
  const sent = all.reduce((sum, one) => sum + one.sent, 0);
  const size = all.reduce((sum, one) => sum + one.size, 0);
  const text = active() ? `Uploading ${count(all.length, "object")}: ${bytes(sent)} of ${bytes(size)}` : `${of("done").length} of ${count(all.length, "object")} uploaded`;
  // Those that need somebody first, then those that are under way.
  const rank = { failed: 0, exists: 1, sending: 2, waiting: 3, done: 4 };
  const listed = [...all].sort((one, other) => rank[one.state] - rank[other.state] || one.id - other.id).slice(0, SHOWN);
  return html`
    <section class="panel uploads" aria-label="uploads">
      <header>
        <p role="status">${text}</p>
        ${exist.length > 1 && html`<button onClick=${() => exist.forEach(({ id }) => again(id, true))}>Replace all ${exist.length}</button>`}
        <button class="plain" aria-label=${active() ? "cancel all uploads" : "close"} onClick=${() => (all.forEach(({ id }) => requests.get(id)?.abort()), (uploads.value = []))}>×</button>
      </header>
      <ul>
        ${listed.map((one) => html`<${Upload} key=${one.id} one=${one} />`)}
        ${all.length > listed.length && html`<li class="quiet">and ${all.length - listed.length} more</li>`}
      </ul>
    </section>
  `;
}

function Upload({ one }) {
  const share = one.size ? one.sent / one.size : one.state === "done" ? 1 : 0;
  const says = { waiting: "waiting", sending: `${Math.floor(100 * share)} %`, done: "done", exists: "exists already", failed: one.error }[one.state];
  return html`
    <li class=${one.state}>
      <span class="name" title=${one.url}>${one.name}</span>
      <span class="meter" role="progressbar" aria-label=${one.name} aria-valuenow=${Math.round(100 * share)}><i style=${{ width: `${100 * share}%` }}></i></span>
      <span class="small says">${says}</span>
      ${one.state === "exists" && html`<button onClick=${() => again(one.id, true)}>Replace</button>`}
      ${one.state === "failed" && html`<button onClick=${() => again(one.id, one.replace)}>Try again</button>`}
      ${one.state !== "done" && html`<button class="plain" aria-label="cancel ${one.name}" onClick=${() => cancel(one.id)}>×</button>`}
    </li>
  `;
}

/** The files of a drop, those in directories with their paths: [{file, path}]. */
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ file, path: file.name }));
  const found = [];
  for (const entry of entries) await walk(entry, "", found);
  return found;
}

async function walk(entry, above, found) {
  const path = above + entry.name;
  if (entry.isFile) {
    found.push({ file: await new Promise((resolve, reject) => entry.file(resolve, reject)), path });
    return;
  }
  const reader = entry.createReader();
  while (true) {
    // It returns at most a hundred entries at a time.
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return;
    for (const one of some) await walk(one, `${path}/`, found);
  }
}
