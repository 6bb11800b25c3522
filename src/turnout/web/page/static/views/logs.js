// The log of a job. Only a window of its lines is drawn: more are loaded at both ends. The bar stands for the whole log.

import { download, jobPath } from "../api.js";
import { attempt, notify } from "../dialog.js";
import { bytes, clock } from "../format.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { Line } from "../lines.js";
import { useLiveJob } from "../live_job.js";
import { LogWindow } from "../log_window.js";
import { Badge, Failure, isLive, Loading } from "../parts.js";
import { address, setQuery } from "../router.js";

const NEAR = 600; // pixels from an end at which more is loaded
const SETTLE_MS = 120;
const QUIET_MS = 350;

export default function Logs({ params, query }) {
  const { data: job, error, reload } = useLiveJob(params.id);
  if (!job) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  return html`<${Log} job=${job} query=${query} />`;
}

function Log({ job, query }) {
  const part = useMemo(() => ({ replica: query.replica ?? "", attempt: query.attempt ?? "" }), [query.replica, query.attempt]);
  const find = query.find ?? "";
  const errors = query.errors === "true";
  const [, draw] = useState(0);
  const lines = useMemo(() => new LogWindow(job.id, part, { find, errors }, () => draw((count) => count + 1)), [job.id, part, find, errors]);
  const scroller = useRef();
  const search = useRef();
  const [wrap, setWrap] = useState(localStorage.getItem("turnout-wrap") === "true" || innerWidth < 640);
  const [times, setTimes] = useState(innerWidth >= 640);
  const [marked, setMarked] = useState(decodeURIComponent(location.hash.slice(1)));
  const merged = job.replicas.length > 1 && !part.replica;
  const live = isLive(job.state);

  useEffect(() => {
    document.title = `Log of ${job.name} · Turnout`;
    if (query.jump === "error") firstError();
    else if (marked && !find && !errors) attempt(() => lines.around(marked));
    else attempt(() => (find || errors ? lines.search() : lines.end()));
    return () => lines.close();
  }, [lines]);
  useEffect(() => {
    if (live && lines.atEnd && !find && !errors) return lines.follow();
    return undefined;
  }, [lines, live, lines.atEnd]);
  // The lines that somebody reads stay where they are when lines are added or removed above them.
  useLayoutEffect(() => lines.place(scroller.current));

  const scrolled = () => {
    const box = scroller.current;
    lines.stuck = lines.atEnd && box.scrollHeight - box.scrollTop - box.clientHeight < 30;
    if (box.scrollTop < NEAR) lines.before();
    if (box.scrollHeight - box.scrollTop - box.clientHeight < NEAR) lines.after();
    lines.settle(box, SETTLE_MS);
  };
  const firstError = async () => {
    const found = await attempt(() => lines.firstError());
    setQuery({ jump: "" });
    if (found) mark(found);
    if (found !== "") return;
    notify("No line looks like an error");
    if (!lines.rows.length) attempt(() => lines.end());
  };
  const mark = (id) => {
    history.replaceState(null, "", `${address(location.pathname, { ...query, find: "", errors: "", jump: "" })}#${encodeURIComponent(id)}`);
    setMarked(id);
    if (find || errors) setQuery({ find: "", errors: "" });
    else attempt(() => lines.around(id));
  };
  const toggleWrap = () => {
    localStorage.setItem("turnout-wrap", String(!wrap));
    setWrap(!wrap);
  };
  useKeys({
    "/": ["search the log", () => search.current.focus()],
    e: ["the first error", firstError],
    g: ["the beginning", () => attempt(() => lines.start())],
    G: ["the end", () => attempt(() => lines.end())],
    w: ["wrap lines", toggleWrap],
    t: ["times", () => setTimes(!times)],
  });
  return html`
    <div class="log">
      <header class="heading">
        <h1><a href="/jobs/${job.id}">${job.name}</a></h1>
        <${Badge} state=${job.state} />
        <${Find} ...${{ find, search }} />
        <div class="actions">
          <${Choice} label="replica" all="all replicas" value=${part.replica} options=${job.replicas.map((one) => one.name)} />
          ${job.attempt > 1 && html`<${Choice} label="attempt" all="all attempts" value=${part.attempt} options=${Array.from({ length: job.attempt }, (_, at) => String(at + 1))} />`}
          <button aria-pressed=${errors} onClick=${() => setQuery({ errors: errors ? "" : "true" })} title="only lines that look like errors">Errors</button>
          <button onClick=${firstError} title="e">First error</button>
          <button aria-pressed=${wrap} onClick=${toggleWrap} title="w">Wrap</button>
          <button aria-pressed=${times} onClick=${() => setTimes(!times)} title="t">Times</button>
          <button onClick=${() => attempt(() => download(jobPath(job.id, "/logs/download"), part.replica ? { replica: part.replica } : {}))}>Download</button>
        </div>
      </header>
      <div class="log-frame">
        <div class="log-lines ${wrap ? "wrap" : ""} ${times ? "times" : ""}" ref=${scroller} onScroll=${scrolled} tabindex="0" role="log" aria-label="log of ${job.name}" aria-live="off">
          ${lines.status && html`<p class="quiet log-note">${lines.status}</p>`}
          <ol>${lines.rows.map((line) => lines.drawn(line, `${marked === line.id} ${merged} ${find}`, () => html`<${Row} key=${line.id} ...${{ line, find, merged, mark }} marked=${marked === line.id} />`))}</ol>
          ${lines.atEnd && live && html`<p class="quiet log-note">${lines.rows.length ? "" : "The job has printed nothing yet. "}<span class="badge running"><i></i></span> following</p>`}
          ${lines.atEnd && !live && !lines.rows.length && !lines.busy && html`<p class="quiet log-note">${find || errors ? "No line matches." : "The log is empty."}</p>`}
        </div>
        ${!find && !errors && html`<${Bar} lines=${lines} extent=${lines.extent} />`}
      </div>
    </div>
  `;
}

function Row({ line, find, merged, marked, mark }) {
  return html`
    <li id=${line.id} class="${line.stream} ${marked ? "marked" : ""}">
      <a class="at" href="#${encodeURIComponent(line.id)}" title="${clock(line.at, { parts: 3 })}: link to this line" onClick=${(event) => (event.preventDefault(), mark(line.id))}>${clock(line.at, { date: false, parts: 3 })}</a>
      ${merged && html`<span class="who h${hue(line.replica)}"><bdi>${line.replica}</bdi></span>`}
      <${Line} text=${line.text} find=${find} />
    </li>
  `;
}

const hue = (name) => [...name].reduce((sum, one) => (sum * 31 + one.charCodeAt(0)) % 6, 7);

function Find({ find, search }) {
  const [text, setText] = useState(find);
  useEffect(() => setText(find), [find]);
  useEffect(() => {
    if (text === find) return undefined;
    const waiting = setTimeout(() => setQuery({ find: text }), QUIET_MS);
    return () => clearTimeout(waiting);
  }, [text]);
  return html`<input ref=${search} type="search" aria-label="search the log" placeholder="Search" value=${text} onInput=${(event) => setText(event.target.value)} />`;
}

function Choice({ label, all, value, options }) {
  if (options.length < 2) return null;
  return html`
    <select aria-label=${label} value=${value} onChange=${(event) => setQuery({ [label]: event.target.value })}>
      <option value="">${all}</option>
      ${options.map((one) => html`<option>${one}</option>`)}
    </select>
  `;
}

/** Stands for the whole log; its handle is where the window is. */
function Bar({ lines, extent: { size, position } }) {
  const waiting = useRef(0);
  const [dragged, setDragged] = useState(null);
  const go = (event) => {
    const wanted = Number(event.target.value);
    setDragged(wanted);
    clearTimeout(waiting.current);
    waiting.current = setTimeout(async () => {
      await attempt(() => lines.at(wanted));
      setDragged(null);
    }, SETTLE_MS);
  };
  if (!size) return null;
  return html`
    <div class="log-bar" title="${bytes(dragged ?? position)} of ${bytes(size)}">
      <input type="range" aria-label="place in the log" min="0" max=${size} step=${Math.max(1, Math.floor(size / 2000))} value=${dragged ?? position} onInput=${go} />
      <span class="small quiet number">${bytes(size)}</span>
    </div>
  `;
}
