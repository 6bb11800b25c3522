// Buckets and what is in them: browse, upload, download, delete.

import { del, download, get, request, session, useLoad } from "../api.js";
import { attempt, confirm, Dialog, notify } from "../dialog.js";
import { bytes, count } from "../format.js";
import { html, useEffect, useRef, useSignal, useState } from "../html.js";
import { Ago, Empty, Failure, Loading } from "../parts.js";
import { address, navigate, setQuery } from "../router.js";
import { Table } from "../table.js";
import { Copy } from "./copy.js";
import { styles } from "./styles.js";
import { dropped, onUploaded, upload, Uploads } from "./uploads.js";

await styles("storage.css");

const PAGE = 200;
const QUIET_MS = 300;
const AT_ONCE = 4;

/** `/storage/data?prefix=runs/` or, from other views, `/storage/data/runs/`. */
export default function Storage({ params, query }) {
  const rest = params.rest ?? "";
  const bucket = rest.split("/")[0];
  const prefix = query.prefix ?? rest.slice(bucket.length + 1);
  const project = query.project ?? "";
  const buckets = useLoad((abort) => get("/buckets", { project }, abort), [project]);
  if (!buckets.data) return buckets.error ? html`<${Failure} error=${buckets.error} retry=${buckets.reload} />` : html`<${Loading} />`;
  const found = buckets.data.buckets.find((one) => one.name === bucket);
  if (!bucket) return html`<${Buckets} ...${{ buckets, project }} />`;
  if (!found) return html`<${Empty} title="There is no bucket ${bucket}"><a href=${address("/storage", { project })}>To the buckets</a><//>`;
  return html`<${Objects} key=${`${project} ${prefix}`} ...${{ bucket: found, prefix, project, query }} />`;
}

const place = (bucket, prefix, project) => address(`/storage/${encodeURIComponent(bucket)}`, { prefix, project });

function Projects({ project }) {
  const { data } = useLoad((abort) => (session.value.root ? get("/projects", {}, abort) : Promise.resolve({ projects: [] })), []);
  const names = data?.projects.map(({ name }) => name) ?? [];
  if (names.length < 2) return null;
  return html`
    <select aria-label="project" value=${project} onChange=${(event) => setQuery({ project: event.target.value }, { replace: false })}>
      <option value="">${session.value.project}</option>
      ${names.filter((name) => name !== session.value.project).map((name) => html`<option value=${name}>${name}</option>`)}
    </select>
  `;
}

const BUCKET = (project) => [
  { name: "job", title: "Bucket", cell: (row) => html`<a href=${place(row.name, "", project)}>${row.name}</a>` },
  { name: "url", title: "URL", cell: (row) => html`<code class="quiet">${row.url}</code>` },
  { name: "kind", title: "Where", cell: (row) => (row.store ? html`<span class="quiet">remote: ${row.store}</span>` : html`on this service${row.shared && html` <span class="chip">all projects</span>`}`) },
  { name: "created", title: "Created", kind: "number", cell: (row) => html`<${Ago} at=${row.created} />` },
];

function Buckets({ buckets, project }) {
  const [making, setMaking] = useState(false);
  const rows = buckets.data.buckets;
  return html`
    <div class="storage">
      <header class="heading">
        <h1>Buckets</h1>
        <${Projects} project=${project} />
        <div class="actions"><button class="primary" onClick=${() => setMaking(true)}>Create a bucket</button></div>
      </header>
      <${Uploads} />
      ${rows.length
        ? html`<${Table} label="buckets" rows=${rows} columns=${BUCKET(project)} id=${(row) => row.name} href=${(row) => place(row.name, "", project)} />`
        : html`<${Empty} title="No buckets yet"><p>The first job that writes to a bucket creates it. So does <code>turnout cp</code>, or the button above.</p><//>`}
      ${making && html`<${Make} project=${project} close=${() => setMaking(false)} />`}
    </div>
  `;
}

function Make({ project, close }) {
  const [error, setError] = useState("");
  const make = async (event) => {
    const name = new FormData(event.target).get("name").trim();
    try {
      await request("PUT", `/buckets/${encodeURIComponent(name)}`, { query: { project } });
      navigate(place(name, "", project));
    } catch (problem) {
      setError(problem.message);
    }
  };
  return html`
    <${Dialog} title="Create a bucket" close=${close} action=${make}>
      <label>Name<input name="name" required autofocus maxlength="63" pattern="[a-z0-9][a-z0-9._\\-]*" title="lower-case letters, digits, . _ and -" spellcheck="false" autocapitalize="off" autocomplete="off" /></label>
      <p class="quiet small">You can write its URL as gs://, obs://, cos:// or s3://.</p>
      ${error && html`<p class="problem" role="alert">${error}</p>`}
      <footer><button type="button" onClick=${close}>Cancel</button><button class="primary">Create</button></footer>
    <//>
  `;
}

function Objects({ bucket, prefix, project, query }) {
  const filter = query.find ?? "";
  const base = `${bucket.url}/${prefix}`;
  const list = useObjects(base + filter, project);
  const selected = useSignal(new Set());
  const [over, setOver] = useState(false);
  const depth = useRef(0);
  useEffect(() => onUploaded((url) => url.startsWith(base) && list.reload()), [base, list.rows.length]);
  const add = (files) => files.length && upload(files, base, project);
  const drop = async (event) => {
    event.preventDefault();
    depth.current = 0;
    setOver(false);
    await attempt(async () => add(await dropped(event.dataTransfer)));
  };
  const enter = (by) => (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    depth.current += by;
    setOver(depth.current > 0);
  };
  const chosen = list.rows.filter((row) => selected.value.has(row.key));
  return html`
    <div class="storage ${over ? "over" : ""}" onDragEnter=${enter(1)} onDragLeave=${enter(-1)} onDragOver=${(event) => event.preventDefault()} onDrop=${drop}>
      <${Path} ...${{ bucket, prefix, project }} />
      <div class="line">
        ${chosen.length
          ? html`<${Bulk} ...${{ chosen, selected, bucket, project, reload: list.reload }} />`
          : html`<${Tools} ...${{ bucket, prefix, project, filter, add, list }} />`}
      </div>
      <${Uploads} />
      ${list.error && html`<${Failure} error=${list.error} retry=${list.reload} />`}
      ${!list.rows.length && list.loading && html`<${Loading} />`}
      ${!list.rows.length && !list.loading && !list.error && html`<${Nothing} ...${{ bucket, prefix, project, filter }} />`}
      ${list.rows.length > 0 &&
      html`<${Table} label="objects" rows=${list.rows} columns=${columnsOf(bucket, prefix, project)} id=${(row) => row.key} href=${(row) => (row.folder ? place(bucket.name, row.key, project) : "")} selected=${selected} />`}
      ${list.next && html`<p class="more"><button disabled=${list.loading} onClick=${list.more}>Show ${PAGE} more</button></p>`}
      <p class="drop-hint" aria-hidden="true">Drop to upload to ${base}</p>
    </div>
  `;
}

function Path({ bucket, prefix, project }) {
  const names = prefix.split("/").filter((name, at, all) => name || at < all.length - 1);
  const to = (at) => place(bucket.name, `${names.slice(0, at + 1).join("/")}/`, project);
  return html`
    <nav class="path" aria-label="path">
      <a href=${address("/storage", { project })}>Buckets</a>
      <span aria-hidden="true">/</span>
      ${names.length ? html`<a href=${place(bucket.name, "", project)}>${bucket.name}</a>` : html`<b aria-current="page">${bucket.name}</b>`}
      ${names.map((name, at) => html`<span aria-hidden="true">/</span>${at === names.length - 1 ? html`<b aria-current="page">${name}</b>` : html`<a href=${to(at)}>${name}</a>`}`)}
      <span class="quiet"><${Copy} text=${`${bucket.url}/${prefix}`} label="the URL" /></span>
    </nav>
  `;
}

function Tools({ bucket, prefix, project, filter, add, list }) {
  const [text, setText] = useState(filter);
  const files = useRef();
  useEffect(() => {
    if (text === filter) return undefined;
    const waiting = setTimeout(() => setQuery({ find: text }), QUIET_MS);
    return () => clearTimeout(waiting);
  }, [text]);
  const pick = (event) => {
    add([...event.target.files].map((file) => ({ file, path: file.webkitRelativePath || file.name })));
    event.target.value = "";
  };
  const remove = async () => {
    if (!(await confirm({ title: `Remove the bucket ${bucket.name}?`, text: "It is empty. Its name stays reserved for the project.", yes: "Remove", danger: true }))) return;
    await attempt(async () => {
      await del(`/buckets/${encodeURIComponent(bucket.name)}`, { project });
      navigate(address("/storage", { project }), { replace: true });
    });
  };
  const empty = !list.rows.length && !list.loading && !prefix && !filter;
  return html`
    <input type="search" aria-label="names that begin with" placeholder="Begins with…" value=${text} onInput=${(event) => setText(event.target.value)} />
    <span class="quiet small">${list.rows.length > 0 && `${list.next ? "the first " : ""}${count(list.rows.length, "entry", "entries")}`}</span>
    <span class="actions">
      ${empty && !bucket.store && html`<button class="danger" onClick=${remove}>Remove the bucket</button>`}
      <button class="primary" onClick=${() => files.current.click()}>Upload</button>
      <input ref=${files} class="files" type="file" multiple hidden aria-label="files to upload" onChange=${pick} />
    </span>
  `;
}

const Nothing = ({ prefix, filter }) =>
  filter
    ? html`<${Empty} title="No name begins with ${filter}"><button onClick=${() => setQuery({ find: "" })}>Show all</button><//>`
    : html`<${Empty} title=${prefix ? "Nothing here" : "The bucket is empty"}><p>Drop files here, or use <code>turnout cp</code>.</p><//>`;

const columnsOf = (bucket, prefix, project) => [
  {
    name: "job",
    title: "Name",
    cell: (row) => {
      const name = row.key.slice(prefix.length) || row.key;
      if (row.folder) return html`<a class="folder" href=${place(bucket.name, row.key, project)}>${name}</a>`;
      return html`<button class="plain object" title="download" onClick=${() => attempt(() => download("/object", { url: `${bucket.url}/${row.key}`, project }))}>${name}</button>`;
    },
  },
  { name: "size", title: "Size", kind: "number", cell: (row) => (row.folder ? null : html`<span title="${row.size.toLocaleString("en")} bytes">${bytes(row.size)}</span>`) },
  { name: "type", title: "Type", cell: (row) => html`<span class="quiet">${row.folder ? "" : row.content_type}</span>` },
  { name: "created", title: "Changed", kind: "number", cell: (row) => (row.folder ? null : html`<${Ago} at=${row.modified} />`) },
];

function Bulk({ chosen, selected, bucket, project, reload }) {
  const [done, setDone] = useState(null);
  const folders = chosen.filter((row) => row.folder);
  const objects = chosen.filter((row) => !row.folder);
  const fetchAll = () =>
    attempt(async () => {
      for (const row of objects) await download("/object", { url: `${bucket.url}/${row.key}`, project });
    });
  const remove = async () => {
    const what = [folders.length && `${count(folders.length, "folder")} with everything in ${folders.length === 1 ? "it" : "them"}`, objects.length && count(objects.length, "object")].filter(Boolean).join(" and ");
    const names = chosen.slice(0, 4).map((row) => row.key).join(", ") + (chosen.length > 4 ? ", …" : "");
    if (!(await confirm({ title: `Delete ${what}?`, text: `${names} in ${bucket.url}. This cannot be undone.`, yes: "Delete", danger: true }))) return;
    let deleted = 0;
    setDone(0);
    await attempt(async () => {
      const each = async (keys) => {
        await inParallel(keys, async (key) => {
          await del("/object", { url: `${bucket.url}/${key}`, project });
          setDone((deleted += 1));
        });
      };
      await each(objects.map((row) => row.key));
      for (const folder of folders) await emptied(`${bucket.url}/${folder.key}`, project, each);
      notify(`Deleted ${count(deleted, "object")}`);
    });
    setDone(null);
    selected.value = new Set();
    reload();
  };
  return html`
    <span>${done === null ? `${count(chosen.length, "entry", "entries")} selected` : `Deleting: ${done}`}</span>
    <button disabled=${!objects.length || done !== null} onClick=${fetchAll}>Download</button>
    <button class="danger" disabled=${done !== null} onClick=${remove}>Delete</button>
    <button class="plain quiet" onClick=${() => (selected.value = new Set())}>Select none</button>
  `;
}

/** Deletes page by page what is below a URL. */
async function emptied(url, project, each) {
  let after = "";
  do {
    const page = await get("/objects", { url, project, after });
    await each(page.objects.map((one) => one.key));
    after = page.next;
  } while (after);
}

async function inParallel(items, work) {
  const left = [...items];
  const worker = async () => {
    while (left.length) await work(left.shift());
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

function useObjects(url, project) {
  const [state, setState] = useState({ rows: [], next: "", loading: true, error: null });
  const read = async (after, limit, before, abort) => {
    const page = await get("/objects", { url, project, delimiter: "/", after, limit }, abort);
    const rows = [...page.prefixes.map((key) => ({ key, folder: true })), ...page.objects];
    rows.sort((one, other) => Boolean(other.folder) - Boolean(one.folder) || (one.key < other.key ? -1 : 1));
    setState({ rows: [...before, ...rows], next: page.next, loading: false, error: null });
  };
  const begin = (work) => {
    setState((now) => ({ ...now, loading: true }));
    work.catch((error) => error.name === "AbortError" || setState((now) => ({ ...now, error, loading: false })));
  };
  useEffect(() => {
    const abort = new AbortController();
    begin(read("", PAGE, [], abort.signal));
    return () => abort.abort();
  }, [url, project]);
  return {
    ...state,
    reload: () => begin(read("", Math.min(1000, Math.max(PAGE, state.rows.length)), [])),
    more: () => begin(read(state.next, PAGE, state.rows)),
  };
}
