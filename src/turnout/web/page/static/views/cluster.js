// The clusters: nodes with what is used of them and by whom, and the queue with what each job waits for.

import { get, post, session, useLoad } from "../api.js";
import { attempt, notify } from "../dialog.js";
import { bytes, count, number } from "../format.js";
import { html, useState } from "../html.js";
import { Api, Badge, Failure, Loading, Section } from "../parts.js";
import { Table } from "../table.js";
import { useReload } from "./changes.js";
import { styles } from "./styles.js";

await styles("cluster.css");

const NODES = 60;
const ROWS = 100;
const HUES = ["--blue", "--green", "--violet", "--amber", "--teal", "--red", "--accent"];

export default function Cluster({ query }) {
  const queue = useLoad((abort) => get("/queue", { project: query.project }, abort), [query.project]);
  const clusters = useLoad((abort) => get("/clusters", {}, abort), []);
  const reload = () => {
    queue.reload();
    clusters.reload();
  };
  useReload(reload);
  if (!queue.data || !clusters.data) {
    const error = queue.error ?? clusters.error;
    return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  }
  giveHues(queue.data.engines.flatMap((engine) => engine.holding));
  const named = new Map(clusters.data.clusters.map((one) => [one.name, one]));
  return html`
    <div class="cluster">
      ${queue.error && html`<${Failure} error=${queue.error} retry=${reload} />`}
      ${queue.data.engines.map((engine) => html`<${Engine} key=${engine.engine} engine=${engine} clusters=${engine.clusters.map((name) => named.get(name)).filter(Boolean)} reload=${reload} />`)}
    </div>
  `;
}

function Engine({ engine, clusters, reload }) {
  const own = clusters.filter((one) => !one.shared);
  const names = (own.length ? own : clusters).map((one) => one.name);
  const title = engine.engine === "local" ? "This machine" : names.join(", ") || engine.engine;
  const kind = engine.engine.split("/")[0];
  return html`
    <section class="engine" aria-label=${title}>
      <header class="heading">
        <h1>${title}</h1>
        <span class="quiet">${kind === "local" ? `clusters ${names.join(", ")}` : kind}</span>
        ${engine.trouble ? html`<span class="badge failed"><i aria-hidden="true"></i>away</span>` : html`<span class="badge succeeded"><i aria-hidden="true"></i>ready</span>`}
        <div class="actions">${session.value.root && clusters.filter((one) => one.engine !== "local").map((one) => html`<${Drain} key=${one.name} cluster=${one} reload=${reload} />`)}</div>
      </header>
      ${engine.trouble && html`<p class="trouble" role="status">${engine.trouble}</p>`}
      ${(engine.nodes.length > 0 || engine.holding_count + engine.waiting_count > 0) && html`<${Totals} engine=${engine} />`}
      ${engine.nodes.length || kind === "local" ? html`<${Nodes} engine=${engine} />` : html`<${ReportedNodes} nodes=${clusters.flatMap((one) => one.nodes)} />`}
      <${Holding} engine=${engine} />
      <${Waiting} engine=${engine} />
    </section>
  `;
}

function Drain({ cluster, reload }) {
  const [verb, done] = cluster.drained ? ["resume", "New jobs start again"] : ["drain", "New jobs wait; those that run go on"];
  const change = () =>
    attempt(async () => {
      await post(`/clusters/${encodeURIComponent(cluster.name)}/${verb}`);
      notify(done);
      reload();
    });
  return html`${cluster.drained && html`<span class="chip">drained</span>`}<button onClick=${change}>${verb === "drain" ? "Drain" : "Resume"}</button>`;
}

const MEASURES = [
  ["cpu", "CPU", (value) => number(Math.round(value * 10) / 10)],
  ["memory", "Memory", bytes],
  ["gpus", "GPUs", number],
];

function Totals({ engine }) {
  return html`
    <dl class="tiles">
      ${MEASURES.filter(([name]) => engine.capacity[name] > 0).map(([name, title, text]) => {
        const used = engine.capacity[name] - engine.free[name];
        return html`
          <div key=${name}>
            <dt>${title} allocated</dt>
            <dd><b class="number">${text(used)}</b> <span class="quiet">of ${text(engine.capacity[name])}</span></dd>
            <dd><${Meter} parts=${[{ share: used / engine.capacity[name], hue: "--accent" }]} /></dd>
          </div>
        `;
      })}
      <div><dt>Running jobs</dt><dd><b class="number">${engine.holding_count}</b></dd></div>
      <div><dt>Waiting jobs</dt><dd><b class="number">${engine.waiting_count}</b></dd></div>
    </dl>
  `;
}

const Meter = ({ parts }) => html`
  <span class="meter parts" aria-hidden="true">
    ${parts.map(({ share, hue, title, faint }) => html`<i class=${faint ? "faint" : ""} title=${title} style=${{ width: `${Math.min(100, 100 * share)}%`, background: `var(${hue})` }}></i>`)}
  </span>
`;

const given = new Map();

/** Gives each of the jobs a colour, for as long as they are among them; no two the same while there are enough. */
function giveHues(jobs) {
  const ids = new Set(jobs.map(({ id }) => id));
  for (const id of given.keys()) if (!ids.has(id)) given.delete(id);
  for (const id of ids) {
    if (given.has(id)) continue;
    const used = new Set(given.values());
    given.set(id, HUES.find((one) => !used.has(one)) ?? HUES[Number(BigInt(id) % BigInt(HUES.length))]);
  }
}

const hue = (job) => given.get(job.id) ?? "--quiet";

function Nodes({ engine }) {
  const [most, setMost] = useState(NODES);
  if (!engine.nodes.length) {
    return html`<p class="quiet note">The machine has not been measured yet.</p>`;
  }
  const held = new Map(engine.nodes.map((node) => [node.name, []]));
  for (const job of engine.holding) for (const one of job.nodes) held.get(one.node)?.push({ job, ...one });
  return html`
    <${Section} title=${count(engine.nodes.length, "node")}>
      <div class="nodes">${engine.nodes.slice(0, most).map((node) => html`<${Node} key=${node.name} node=${node} held=${held.get(node.name)} />`)}</div>
      ${engine.nodes.length > most && html`<p class="more"><button onClick=${() => setMost(most + 4 * NODES)}>Show more of ${engine.nodes.length} nodes</button></p>`}
    <//>
  `;
}

/** Nodes of a cluster that places jobs itself, as its own software describes them. */
function ReportedNodes({ nodes }) {
  const [most, setMost] = useState(NODES);
  if (!nodes.length) return html`<p class="quiet note">This cluster does not report its nodes. The list of running jobs says where each job runs.</p>`;
  return html`
    <${Section} title=${count(nodes.length, "node")} aside=${unusable(nodes)}>
      <div class="nodes">${nodes.slice(0, most).map((node) => html`<${ReportedNode} key=${node.name} node=${node} />`)}</div>
      ${nodes.length > most && html`<p class="more"><button onClick=${() => setMost(most + 4 * NODES)}>Show more of ${nodes.length} nodes</button></p>`}
    <//>
  `;
}

function unusable(nodes) {
  const number = nodes.filter((one) => !one.usable).length;
  return number > 0 && `${number} ${number === 1 ? "takes" : "take"} no jobs`;
}

function ReportedNode({ node }) {
  const bars = MEASURES.filter(([name]) => node.capacity[name] > 0).map(
    ([name, title, text]) => html`
      <div class="bar-row" key=${name}>
        <dt>${title}</dt>
        <dd>
          ${node.used ? html`<${Meter} parts=${[{ share: node.used[name] / node.capacity[name], hue: "--accent" }]} />` : html`<span></span>`}
          <span class="number">${node.used && `${text(node.used[name])} `}<span class="quiet">${node.used && "/ "}${text(node.capacity[name])}</span></span>
        </dd>
      </div>
    `,
  );
  return html`
    <article class="panel node" aria-label="node ${node.name}">
      <header><h3>${node.name}</h3><span class="badge ${node.usable ? "succeeded" : "failed"}"><i aria-hidden="true"></i>${node.state}</span></header>
      <dl>${bars}</dl>
      <ul class="node-jobs">
        ${node.jobs.slice(0, 8).map((job) => html`<${NodeJob} key=${job.id} job=${job} replicas=${job.replicas} />`)}
        ${node.jobs.length > 8 && html`<li class="quiet">and ${node.jobs.length - 8} more</li>`}
        ${!node.jobs.length && html`<li class="quiet">${node.used?.cpu ? "other jobs" : "no jobs of yours"}</li>`}
      </ul>
    </article>
  `;
}

const NodeJob = ({ job, replicas }) =>
  html`<li><i class="dot" style=${{ background: `var(${hue(job)})` }}></i><a href="/jobs/${job.id}">${job.name}</a>${replicas > 1 && html` <span class="quiet">× ${replicas}</span>`}</li>`;

function Node({ node, held }) {
  const bars = MEASURES.filter(([name]) => node.capacity[name] > 0).map(([name, title, text]) => {
    const whole = node.capacity[name];
    const used = whole - node.free[name];
    const mine = held.filter((one) => one.holds[name] > 0).map((one) => ({ share: one.holds[name] / whole, hue: hue(one.job), title: `${one.job.name}: ${text(one.holds[name])}` }));
    const others = used - held.reduce((sum, one) => sum + one.holds[name], 0);
    if (others > whole / 1000) mine.push({ share: others / whole, hue: "--quiet", title: `other projects: ${text(others)}`, faint: true });
    return html`
      <div class="bar-row" key=${name}>
        <dt>${title}</dt>
        <dd>
          ${name === "gpus" && whole <= 16 ? html`<${Gpus} node=${node} held=${held} />` : html`<${Meter} parts=${mine} />`}
          <span class="number">${text(used)} <span class="quiet">/ ${text(whole)}</span></span>
        </dd>
      </div>
    `;
  });
  return html`
    <article class="panel node" aria-label="node ${node.name}">
      <h3>${node.name}</h3>
      <dl>${bars}</dl>
      <ul class="node-jobs">
        ${held.slice(0, 8).map((one) => html`<${NodeJob} key=${one.job.id} job=${one.job} replicas=${one.replicas} />`)}
        ${held.length > 8 && html`<li class="quiet">and ${held.length - 8} more</li>`}
        ${!held.length && html`<li class="quiet">${node.free.cpu < node.capacity.cpu ? "jobs of other projects" : "idle"}</li>`}
      </ul>
    </article>
  `;
}

/** One square for each GPU. GPUs of other projects are not told apart, so they fill up the free squares. */
function Gpus({ node, held }) {
  const owner = new Map(held.flatMap((one) => one.devices.map((device) => [device, one.job])));
  let others = node.capacity.gpus - node.free.gpus - held.reduce((sum, one) => sum + one.holds.gpus, 0);
  const squares = Array.from({ length: node.capacity.gpus }, (_, device) => {
    const job = owner.get(device);
    if (job) return html`<a class="gpu" href="/jobs/${job.id}" title="GPU ${device}: ${job.name}" aria-label="GPU ${device}: ${job.name}" style=${{ background: `var(${hue(job)})` }}></a>`;
    others -= 1;
    return others >= 0 ? html`<i class="gpu other" title="another project"></i>` : html`<i class="gpu" title="GPU ${device}: free"></i>`;
  });
  return html`<span class="gpus">${squares}</span>`;
}

const amounts = (share) =>
  [share.cpu > 0 && `${number(share.cpu)} CPU`, share.memory > 0 && bytes(share.memory), share.gpus > 0 && count(share.gpus, "GPU")].filter(Boolean).join(" · ") || "nothing yet";

const JOB = [
  { name: "job", title: "Job", cell: (row) => html`<a href="/jobs/${row.id}">${row.name}</a>` },
  { name: "api", title: "API", cell: (row) => html`<${Api} name=${row.dialect} />` },
  { name: "project", title: "Project", cell: (row) => row.project },
];

function Holding({ engine }) {
  const [most, setMost] = useState(ROWS);
  if (!engine.holding_count) return null;
  const columns = [
    { ...JOB[0], cell: (row) => html`<i class="dot" style=${{ background: `var(${hue(row)})` }}></i> <a href="/jobs/${row.id}">${row.name}</a>` },
    { name: "state", title: "State", cell: (row) => html`<${Badge} state=${row.state} />` },
    ...JOB.slice(1),
    { name: "holds", title: "Holds", cell: (row) => html`<span class="number">${amounts(row.holds)}</span>` },
    { name: "where", title: "Where", cell: (row) => html`<span class="quiet">${where(row)}</span>` },
  ];
  const hidden = engine.holding_count - engine.holding.length;
  return html`
    <${Section} title="Running" aside=${hidden > 0 && `and ${count(hidden, "job")} of other projects, which hold ${amounts(engine.held_by_others)}`}>
      ${engine.holding.length > 0 && html`<${Table} label="jobs that hold resources" rows=${engine.holding.slice(0, most)} columns=${columns} id=${(row) => row.id} href=${(row) => `/jobs/${row.id}`} />`}
      ${engine.holding.length > most && html`<p class="more"><button onClick=${() => setMost(most + 4 * ROWS)}>Show more of ${engine.holding.length}</button></p>`}
    <//>
  `;
}

function where(row) {
  const nodes = row.nodes.filter((one) => one.node);
  if (!nodes.length) return "not placed yet";
  const texts = nodes.slice(0, 3).map((one) => one.node + (one.devices.length ? ` (GPU ${one.devices.join(", ")})` : ""));
  return texts.join(", ") + (nodes.length > 3 ? ` and ${nodes.length - 3} more` : "");
}

function Waiting({ engine }) {
  const [most, setMost] = useState(ROWS);
  const columns = [
    { name: "place", title: "Place", kind: "number", cell: (row) => row.place },
    ...JOB,
    { name: "priority", title: "Priority", kind: "number", cell: (row) => row.priority },
    { name: "needs", title: "Needs", cell: (row) => html`<span class="number">${amounts(row.needs)}</span>` },
    { name: "why", title: "Waits for", cell: (row) => html`<span class="quiet">${row.waits_for.replace(/^place \d+ of \d+( in [^:]+)?: /, "")}</span>` },
  ];
  const hidden = engine.waiting_count - engine.waiting.length;
  if (!engine.waiting_count) return html`<${Section} title="Queue"><p class="quiet note">No job waits.</p><//>`;
  return html`
    <${Section} title="Queue" aside=${hidden > 0 && `and ${hidden} more`}>
      ${engine.waiting.length > 0 && html`<${Table} label="queue" rows=${engine.waiting.slice(0, most)} columns=${columns} id=${(row) => row.id} href=${(row) => `/jobs/${row.id}`} />`}
      ${engine.waiting.length > most && html`<p class="more"><button onClick=${() => setMost(most + 4 * ROWS)}>Show more of ${engine.waiting.length}</button></p>`}
    <//>
  `;
}
