// The jobs of all APIs in one table: live, filtered by the address, with actions on many at once.

import { del, get, jobPath, onChange, post, session } from "../api.js";
import { attempt, confirm, notify } from "../dialog.js";
import { count } from "../format.js";
import { html, useEffect, useMemo, useRef, useSignal, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { Ago, Api, APIS, Badge, Empty, Failure, isLive, Lasting, Loading, STATES } from "../parts.js";
import { address, navigate, setQuery } from "../router.js";
import { Table } from "../table.js";

const FILTERS = ["project", "api", "state", "name", "label", "cluster", "since", "until", "ended_since", "order"];
const PAGE = 50;
const QUIET_MS = 400;
const GROUPS = [["", "All"], ["waiting", "Waiting"], ["running", "Running"], ["succeeded", "Succeeded"], ["failed", "Failed"], ["stopped", "Stopped"]];
const SINCE = [["", "any time"], ["1h", "last hour"], ["24h", "last day"], ["7d", "last week"], ["30d", "last 30 days"]];

export default function Jobs({ query }) {
  const filter = Object.fromEntries(FILTERS.flatMap((name) => (query[name] ? [[name, query[name]]] : [])));
  const list = useJobs(filter);
  const selected = useSignal(new Set());
  const search = useRef();
  useKeys({
    "/": ["search by name", () => search.current.focus()],
    Escape: ["select nothing", () => (selected.value = new Set())],
  });
  const several = session.value.root && (!filter.project || new Set(list.rows.map((row) => row.project)).size > 1);
  const columns = useMemo(() => COLUMNS.filter(({ name }) => name !== "project" || several), [several]);
  const chosen = list.rows.filter((row) => selected.value.has(row.id));
  return html`
    <div class="jobs">
      <${Filters} ...${{ query, search }} />
      <div class="line">
        ${chosen.length ? html`<${Bulk} ...${{ chosen, selected }} />` : html`<${Fresh} list=${list} />`}
      </div>
      ${list.error && html`<${Failure} error=${list.error} retry=${list.reload} />`}
      ${!list.rows.length && list.loading && html`<${Loading} />`}
      ${!list.rows.length && !list.loading && !list.error && (Object.keys(filter).length ? html`<${NoMatch} />` : html`<${First} />`)}
      ${list.rows.length > 0 &&
      html`<${Table}
        label="jobs"
        rows=${list.rows}
        columns=${columns}
        id=${(row) => row.id}
        href=${(row) => `/jobs/${row.id}`}
        selected=${selected}
        order=${filter.order ?? "-created"}
        onOrder=${(order) => setQuery({ order: order === "-created" ? "" : order })}
      />`}
      ${list.next && html`<p class="more"><button disabled=${list.loading} onClick=${list.more}>Show ${PAGE} more</button></p>`}
    </div>
  `;
}

const COLUMNS = [
  {
    name: "job",
    title: "Job",
    sort: "name",
    cell: (row) => html`<a href="/jobs/${row.id}">${row.name}</a>${row.attempt > 1 && html` <span class="quiet small">attempt ${row.attempt}</span>`}${labels(row)}`,
  },
  { name: "state", title: "State", cell: (row) => html`<${Badge} state=${row.state} />` },
  { name: "why", title: "", cell: (row) => html`<span class="quiet">${row.waits_for || (isLive(row.state) ? "" : row.message)}</span>` },
  { name: "api", title: "API", cell: (row) => html`<${Api} name=${row.dialect} />` },
  { name: "project", title: "Project", cell: (row) => row.project },
  { name: "cluster", title: "Cluster", cell: (row) => html`<span class="quiet">${row.cluster}</span>` },
  { name: "created", title: "Created", kind: "number", sort: "created", cell: (row) => html`<${Ago} at=${row.created} />` },
  { name: "lasting", title: "Ran", kind: "number", cell: (row) => html`<${Lasting} from=${row.started} to=${row.ended} />` },
];

const labels = (row) =>
  Object.entries(row.labels).slice(0, 3).map(([key, value]) => {
    const text = value ? `${key}=${value}` : key;
    return html` <a class="label" href=${address("/jobs", { label: text })}>${text}</a>`;
  });

function Filters({ query, search }) {
  const [name, setName] = useState(query.name ?? "");
  useEffect(() => setName(query.name ?? ""), [query.name]);
  useEffect(() => {
    if (name === (query.name ?? "")) return undefined;
    const waiting = setTimeout(() => setQuery({ name }), QUIET_MS);
    return () => clearTimeout(waiting);
  }, [name]);
  const others = ["label", "cluster", "project", "until", "ended_since"].filter((one) => query[one]);
  const custom = query.state && !GROUPS.some(([state]) => state === query.state);
  return html`
    <form class="filters" role="search" onSubmit=${(event) => (event.preventDefault(), setQuery({ name }))}>
      <div class="states" role="group" aria-label="state">
        ${GROUPS.map(
          ([state, text]) => html`<button type="button" aria-pressed=${(query.state ?? "") === state} onClick=${() => setQuery({ state }, { replace: false })}>${text}</button>`,
        )}
      </div>
      <input ref=${search} type="search" aria-label="name" placeholder="Name, or train-*" value=${name} onInput=${(event) => setName(event.target.value)} />
      <select aria-label="API" value=${query.api ?? ""} onChange=${(event) => setQuery({ api: event.target.value }, { replace: false })}>
        <option value="">All APIs</option>
        ${Object.entries(APIS).map(([api, text]) => html`<option value=${api}>${text}</option>`)}
      </select>
      <select aria-label="created" value=${query.since ?? ""} onChange=${(event) => setQuery({ since: event.target.value }, { replace: false })}>
        ${SINCE.map(([since, text]) => html`<option value=${since}>${text}</option>`)}
        ${query.since && !SINCE.some(([since]) => since === query.since) && html`<option value=${query.since}>since ${query.since}</option>`}
      </select>
      ${[...(custom ? ["state"] : []), ...others].map(
        (one) => html`<span class="chip">${one}: ${query[one].replaceAll("\n", ", ")}<button type="button" class="plain" aria-label="remove ${one}" onClick=${() => setQuery({ [one]: "" })}>×</button></span>`,
      )}
    </form>
  `;
}

function Fresh({ list }) {
  if (list.fresh) return html`<button class="fresh" onClick=${list.reload}>${count(list.fresh, "newer job")} · show</button>`;
  const shown = list.rows.length;
  return html`<span class="quiet small">${shown ? `${list.next ? "the first " : ""}${count(shown, "job")}` : ""}</span>`;
}

function Bulk({ chosen, selected }) {
  const running = chosen.filter((row) => isLive(row.state));
  const all = async (rows, verb, done, work) => {
    const title = `${verb} ${count(rows.length, "job")}?`;
    const text = rows.length > 5 ? `${rows.slice(0, 5).map((row) => row.name).join(", ")} and ${rows.length - 5} more` : rows.map((row) => row.name).join(", ");
    if (!(await confirm({ title, text, yes: verb, danger: true }))) return;
    const results = await Promise.allSettled(rows.map(work));
    const failed = results.filter((one) => one.status === "rejected");
    if (failed.length) notify(`${failed.length} of ${rows.length}: ${failed[0].reason.message}`, "error");
    else notify(`${done} ${count(rows.length, "job")}`);
    selected.value = new Set();
  };
  return html`
    <span>${count(chosen.length, "job")} selected</span>
    <button disabled=${!running.length} onClick=${() => all(running, "Stop", "Stopping", (row) => post(jobPath(row.id, "/stop")))}>Stop</button>
    <button class="danger" onClick=${() => all(chosen, "Delete", "Deleted", (row) => del(jobPath(row.id)))}>Delete</button>
    <button class="plain quiet" onClick=${() => (selected.value = new Set())}>Select none</button>
  `;
}

const NoMatch = () => html`<${Empty} title="No job matches"><button onClick=${() => navigate("/jobs")}>Show all jobs</button><//>`;

const First = () => html`
  <${Empty} title="No jobs yet">
    <p>Create one with any of the three clouds' SDKs, or on the command line:</p>
    <pre class="code">export TURNOUT_ENDPOINT=${location.origin} TURNOUT_KEY=<i>id</i>:<i>secret</i>
tictl job create hello --command "echo hello" --wait</pre>
  <//>
`;

/** The rows of a filter, kept up to date: a row changes in place; new ones are counted while somebody reads further down. */
function useJobs(filter) {
  const key = JSON.stringify(filter);
  const [state, setState] = useState({ rows: [], next: "", loading: true, error: null, fresh: 0, key: "" });
  const [round, setRound] = useState(0);
  const arrived = useRef([]); // what changed while the list was read: the answer may be older
  const load = async (cursor, abort, before) => {
    setState((old) => ({ ...old, loading: true }));
    arrived.current = [];
    try {
      const page = await get("/jobs", { ...filter, limit: PAGE, cursor }, abort);
      const read = { rows: [...before, ...page.jobs], next: page.next, loading: false, error: null, fresh: 0, key };
      setState(arrived.current.reduce((list, [changes, gone]) => merged(list, changes, gone, filter), read));
      arrived.current = null;
    } catch (error) {
      if (error.name === "AbortError") return;
      arrived.current = null;
      setState((old) => ({ ...old, loading: false, error }));
    }
  };
  useEffect(() => {
    const abort = new AbortController();
    load("", abort.signal, []);
    return () => abort.abort();
  }, [key, round]);
  useEffect(() => {
    const settle = collect((changes, gone, missed) => {
      if (missed) return setRound((before) => before + 1);
      arrived.current?.push([changes, gone]);
      return setState((old) => merged(old, changes, gone, filter));
    });
    return onChange(settle);
  }, [key]);
  return {
    ...state,
    reload: () => {
      scrollTo(0, 0);
      setRound((before) => before + 1);
    },
    more: () => load(state.next, undefined, state.rows),
  };
}

/** Calls `apply` at most once for each frame that is drawn. */
function collect(apply) {
  let changes = new Map();
  let gone = new Set();
  let missed = false;
  let waiting = 0;
  return (kind, data) => {
    if (kind === "change") changes.set(data.id, data);
    else if (kind === "deleted") gone.add(data.id);
    else if (kind === "reset") missed = true;
    waiting ||= requestAnimationFrame(() => {
      apply(changes, gone, missed);
      [changes, gone, missed, waiting] = [new Map(), new Set(), false, 0];
    });
  };
}

function merged(old, changes, gone, filter) {
  const known = new Set(old.rows.map((row) => row.id));
  const rows = old.rows.filter((row) => !gone.has(row.id)).map((row) => changes.get(row.id) ?? row);
  const added = [...changes.values()].filter((row) => !known.has(row.id) && matches(row, filter) && isNewer(row, old.rows));
  if (!added.length) return { ...old, rows };
  added.sort((one, other) => (BigInt(one.id) < BigInt(other.id) ? 1 : -1));
  const atTop = scrollY < 80 && (filter.order ?? "-created") === "-created" && !document.querySelector("tr.current");
  if (atTop) return { ...old, rows: [...added, ...rows] };
  return { ...old, rows, fresh: old.fresh + added.length };
}

const isNewer = (row, rows) => !rows.length || BigInt(row.id) > BigInt(rows[0].id);

/** Whether a new job belongs into the list. What only the service can decide, such as times, it does when the list is read again. */
function matches(row, filter) {
  const states = (filter.state ?? "").split(",").flatMap((state) => ({ "": STATES, live: STATES.slice(0, 4), waiting: STATES.slice(0, 2), ended: STATES.slice(4) })[state] ?? [state]);
  const name = filter.name ?? "";
  const named = name.includes("*")
    ? new RegExp(`^${name.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`).test(row.name)
    : row.name.includes(name);
  return (
    named &&
    states.includes(row.state) &&
    (!filter.project || filter.project === row.project) &&
    (!filter.api || filter.api.split(",").includes(row.dialect)) &&
    (!filter.cluster || filter.cluster.split(",").includes(row.cluster)) &&
    (filter.label ?? "").split("\n").every((label) => {
      const [key, value] = label.split("=");
      return !label || (key in row.labels && (value === undefined || row.labels[key] === value));
    }) &&
    !filter.until && !filter.ended_since
  );
}
