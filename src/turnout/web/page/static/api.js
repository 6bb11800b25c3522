// The native API: requests, the session, downloads, and one stream of the changes of all jobs.

import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { address } from "./router.js";

const API = "/turnout/v1";
const PAGE = "/turnout/page";
const TOKEN = "turnout-page-token";
const AWAY_MS = 20_000; // how long a hidden tab keeps its stream: a browser has only six connections for a host
const RETRIES_MS = [200, 1000];
const LONGEST_PAUSE_MS = 15_000;

/** Who is signed in: {key, label, project, root, no_auth}. null: nobody. undefined: not known yet. */
export const session = signal(undefined);
/** Of the stream of changes: "connecting", "live" or "lost". */
export const live = signal("connecting");

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The answer's JSON. `path` is without `/turnout/v1`. Throws ApiError, and AbortError if `signal` is aborted. */
export async function request(method, path, { query = {}, body, signal: abort } = {}) {
  const answer = async () => (await send(method, address(API + path, query), { body, abort })).json();
  try {
    return await answer();
  } catch (error) {
    // The network was gone in the middle of the answer.
    if (method === "GET" && error instanceof TypeError) return answer();
    throw error;
  }
}

export const get = (path, query, abort) => request("GET", path, { query, signal: abort });
export const post = (path, body, query) => request("POST", path, { body, query });
export const del = (path, query) => request("DELETE", path, { query });

/** The path of a job, whose `{job}` may be a name with slashes. */
export const jobPath = (job, rest = "") => `/jobs/${encodeURIComponent(job)}${rest}`;

/** `body`: JSON, or a File or Blob as it is. `onProgress` would need XMLHttpRequest; see the storage view. */
export async function send(method, url, { body, abort, headers = {} } = {}) {
  const raw = body instanceof Blob;
  const all = { ...credentials(), ...headers };
  if (body !== undefined && !raw) all["Content-Type"] = "application/json";
  const sent = { method, headers: all, body: body === undefined || raw ? body : JSON.stringify(body), signal: abort };
  const response = await reach(url, sent, method === "GET" ? RETRIES_MS : []);
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({}));
  if (response.status === 401 && session.value) session.value = null;
  throw new ApiError(response.status, error?.code ?? "", error?.message ?? `The service answered ${response.status}`);
}

/** A request that only reads is sent again if the network or the service was gone for a moment. */
async function reach(url, sent, pauses) {
  try {
    return await fetch(url, sent);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (!pauses.length) throw new ApiError(0, "Unreachable", "The service does not answer");
    await new Promise((resolve) => setTimeout(resolve, pauses[0]));
    return reach(url, sent, pauses.slice(1));
  }
}

/** The header that proves that a request comes from this page. */
export function credentials() {
  const token = localStorage.getItem(TOKEN);
  return token ? { "Turnout-Page": token } : {};
}

/** Has the browser save an address of the API as a file, without loading it into the page. */
export async function download(path, query = {}) {
  const body = { url: address(API + path, query) };
  const { url } = await (await send("POST", `${PAGE}/tickets`, { body })).json();
  const link = document.createElement("a");
  link.href = url;
  link.download = "";
  link.click();
}

// The session.

export async function findSession() {
  try {
    session.value = await (await send("GET", `${PAGE}/session`)).json();
  } catch (error) {
    if (error.status !== 401) throw error;
    session.value = null;
  }
}

export async function signIn(key, secret) {
  const { token, ...who } = await (await send("POST", `${PAGE}/session`, { body: { key, secret } })).json();
  localStorage.setItem(TOKEN, token);
  session.value = who;
}

export async function signOut() {
  await send("DELETE", `${PAGE}/session`).catch(() => {});
  localStorage.removeItem(TOKEN);
  session.value = null;
}

/** Another tab signed in or out. */
addEventListener("storage", ({ key }) => {
  if (key === TOKEN) findSession().catch(() => {});
});

/**
 * Loads on the first drawing and whenever `deps` change: {data, error, loading, reload}. `data` stays while it is loaded
 * again, so that nothing jumps. `load` gets an AbortSignal.
 */
export function useLoad(load, deps) {
  const [state, setState] = useState({ data: undefined, error: null, loading: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    setState((before) => ({ ...before, loading: true }));
    load(abort.signal).then(
      (data) => abort.signal.aborted || setState({ data, error: null, loading: false }),
      (error) => error.name === "AbortError" || setState((before) => ({ ...before, error, loading: false })),
    );
    return () => abort.abort();
  }, [...deps, round]);
  return { ...state, reload: () => setRound((before) => before + 1) };
}

// Changes.

const listeners = new Set();
let last = ""; // the id of the last event
let running = null;
let hiding = 0;

/**
 * Calls `listener(kind, data)` for each change: "change" with the job as in the list, "deleted" with {id}, and "reset" if
 * changes may have been missed, so that what was read has to be read again. Listen before you read. Returns what ends it.
 */
export function onChange(listener) {
  listeners.add(listener);
  follow();
  return () => listeners.delete(listener);
}

function follow() {
  if (running || document.hidden || !session.value || !listeners.size) return;
  running = new AbortController();
  keepStream(running).finally(() => {
    running = null;
    if (session.value && !document.hidden) follow();
  });
}

async function keepStream(controller) {
  let pause = 500;
  while (!controller.signal.aborted && session.value) {
    try {
      const headers = last ? { "Last-Event-ID": last } : {};
      for await (const event of events(`${API}/changes`, headers, controller.signal)) {
        live.value = "live";
        pause = 500;
        if (event.id) last = event.id;
        // What was read before the stream began may have changed in between.
        const kind = event.kind === "ready" ? "reset" : event.kind;
        if (kind) for (const listener of listeners) listener(kind, JSON.parse(event.data));
      }
    } catch (error) {
      if (controller.signal.aborted) return;
    }
    live.value = "lost";
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

/**
 * The server-sent events of an address: {id, kind, data}. An EventSource could not send the page's header. Comments come
 * as events without a kind.
 */
export async function* events(url, headers, abort) {
  const response = await send("GET", url, { headers: { Accept: "text/event-stream", ...headers }, abort });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) yield parseEvent(block);
  }
}

function parseEvent(block) {
  const event = { id: "", kind: "", data: "" };
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const value = line.slice(at + 1).replace(/^ /, "");
    if (line.startsWith("id:")) event.id = value;
    else if (line.startsWith("event:")) event.kind = value;
    else if (line.startsWith("data:")) event.data += value;
  }
  if (event.data && !event.kind) event.kind = "message";
  return event;
}

session.subscribe((who) => {
  if (who) follow();
  else {
    last = "";
    running?.abort();
  }
});

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => running?.abort(), AWAY_MS);
  else follow();
});
