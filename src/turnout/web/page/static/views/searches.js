// The searches of all APIs: how far each is, and its best trial so far.

import { get, session } from "../api.js";
import { count, number } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Ago, Api, APIS, Badge, Empty, Failure, Lasting, Loading } from "../parts.js";
import { navigate, setQuery } from "../router.js";
import { Table } from "../table.js";
import { useReload } from "./changes.js";
import { styles } from "./styles.js";

await styles("search.css");

const PAGE = 50;
const QUIET_MS = 400;
const BEST = /^best trial \d+ \(\w+\) of \d+: /; // what the service puts before the values of the best trial
const GROUPS = [["", "All"], ["waiting", "Waiting"], ["running", "Running"], ["ended", "Ended"]];

export default function Searches({ query }) {
  const filter = { project: query.project, api: query.api, state: query.state, name: query.name, order: query.order };
  const list = useSearches(filter);
  const filtered = Object.values(filter).some(Boolean);
  const several = session.value.root && new Set(list.rows.map((row) => row.project)).size > 1;
  return html`
    <div class="searches">
      <${Filters} query=${query} />
      <div class="line">
        <span class="quiet small">${list.rows.length > 0 && `${list.next ? "the first " : ""}${count(list.rows.length, "search", "searches")}`}</span>
      </div>
      ${list.error && html`<${Failure} error=${list.error} retry=${list.reload} />`}
      ${!list.rows.length && list.loading && html`<${Loading} />`}
      ${!list.rows.length && !list.loading && !list.error && (filtered ? html`<${NoMatch} />` : html`<${First} />`)}
      ${list.rows.length > 0 &&
      html`<${Table}
        label="searches"
        rows=${list.rows}
        columns=${COLUMNS.filter(({ name }) => name !== "project" || several)}
        id=${(row) => row.id}
        href=${(row) => `/searches/${row.id}`}
        order=${filter.order ?? "-created"}
        onOrder=${(order) => setQuery({ order: order === "-created" ? "" : order })}
      />`}
      ${list.next && html`<p class="more"><button disabled=${list.loading} onClick=${list.more}>Show ${PAGE} more</button></p>`}
    </div>
  `;
}

const COLUMNS = [
  { name: "job", title: "Search", sort: "name", cell: (row) => html`<a href="/searches/${row.id}">${row.name}</a>` },
  { name: "state", title: "State", cell: (row) => html`<${Badge} state=${row.state} />` },
  { name: "tried", title: "Trials", cell: (row) => html`<${Progress} row=${row} />` },
  { name: "objective", title: "Objective", cell: (row) => row.metric && html`<span class="api">${row.goal}</span> ${row.metric}` },
  { name: "why", title: "Best so far", cell: (row) => html`<span class="quiet" title=${row.message}>${row.waits_for || row.message.replace(BEST, "").replace(/-?\d+\.\d{5,}/g, (text) => number(Number(text)))}</span>` },
  { name: "algorithm", title: "Algorithm", cell: (row) => html`<span class="quiet">${row.algorithms.join(", ")}</span>` },
  { name: "api", title: "API", cell: (row) => html`<${Api} name=${row.dialect} />` },
  { name: "project", title: "Project", cell: (row) => row.project },
  { name: "created", title: "Created", kind: "number", sort: "created", cell: (row) => html`<${Ago} at=${row.created} />` },
  { name: "lasting", title: "Ran", kind: "number", cell: (row) => html`<${Lasting} from=${row.started} to=${row.ended} />` },
];

/** Trials as one bar: good, failed and running ones of those that are to be tried. */
export function Progress({ row }) {
  const { succeeded = 0, infeasible = 0, requested = 0, active = 0, stopping = 0 } = row.trials;
  const running = requested + active + stopping;
  const most = Math.max(row.max_trials, succeeded + infeasible + running, 1);
  const part = (kind, amount) => amount > 0 && html`<i class=${kind} style=${{ width: `${(100 * amount) / most}%` }}></i>`;
  const text = [`${succeeded} with a result`, infeasible && `${infeasible} failed`, running && `${running} running or waiting`].filter(Boolean).join(", ");
  return html`
    <span class="progress" title=${`${text}; at most ${most}`}>
      <span class="meter" aria-hidden="true">${part("succeeded", succeeded)}${part("failed", infeasible)}${part("running", running)}</span>
      <span class="number">${succeeded + infeasible}<span class="quiet"> / ${most}</span></span>
    </span>
  `;
}

function Filters({ query }) {
  const [name, setName] = useState(query.name ?? "");
  useEffect(() => setName(query.name ?? ""), [query.name]);
  useEffect(() => {
    if (name === (query.name ?? "")) return undefined;
    const waiting = setTimeout(() => setQuery({ name }), QUIET_MS);
    return () => clearTimeout(waiting);
  }, [name]);
  return html`
    <form class="filters" role="search" onSubmit=${(event) => (event.preventDefault(), setQuery({ name }))}>
      <div class="states" role="group" aria-label="state">
        ${GROUPS.map(
          ([state, text]) => html`<button type="button" aria-pressed=${(query.state ?? "") === state} onClick=${() => setQuery({ state }, { replace: false })}>${text}</button>`,
        )}
      </div>
      <input type="search" aria-label="name" placeholder="Name, or tune-*" value=${name} onInput=${(event) => setName(event.target.value)} />
      <select aria-label="API" value=${query.api ?? ""} onChange=${(event) => setQuery({ api: event.target.value }, { replace: false })}>
        <option value="">All APIs</option>
        ${["modelarts", "vertex"].map((api) => html`<option value=${api}>${APIS[api]}</option>`)}
      </select>
      ${query.project && html`<span class="chip">project: ${query.project}<button type="button" class="plain" aria-label="remove project" onClick=${() => setQuery({ project: "" })}>×</button></span>`}
    </form>
  `;
}

const NoMatch = () => html`<${Empty} title="No search matches"><button onClick=${() => navigate("/searches")}>Show all searches</button><//>`;

const First = () => html`
  <${Empty} title="No searches yet">
    <p>A hyper-parameter search is a Vertex HyperparameterTuningJob, or a ModelArts job with <code>auto_search</code>.</p>
  <//>
`;

function useSearches(filter) {
  const [state, setState] = useState({ rows: [], next: "", loading: true, error: null });
  const key = JSON.stringify(filter);
  const read = async (limit, cursor, before, abort) => {
    const found = await get("/searches", { ...filter, limit, cursor }, abort);
    setState({ rows: [...before, ...found.searches], next: found.next, loading: false, error: null });
  };
  const begin = (work) => {
    setState((now) => ({ ...now, loading: true }));
    work.catch((error) => error.name === "AbortError" || setState((now) => ({ ...now, error, loading: false })));
  };
  useEffect(() => {
    const abort = new AbortController();
    begin(read(PAGE, "", [], abort.signal));
    return () => abort.abort();
  }, [key]);
  const reload = () => begin(read(Math.min(100, Math.max(PAGE, state.rows.length)), "", []));
  const known = new Set(state.rows.map((row) => row.id));
  // Only the service knows whether a job outside the list is a search. A search has no attempts.
  useReload(reload, { concerns: (job) => known.has(job.id) || (!job.attempt && job.state === "queued"), pause: 2000 });
  return { ...state, reload, more: () => begin(read(PAGE, state.next, state.rows)) };
}
