// The shell: navigation, sign-in, and the view of the address.

import { html, render, signal, useEffect, useErrorBoundary, useState } from "./html.js";
import { findSession, live, session, signIn, signOut } from "./api.js";
import { attempt, Dialog, Overlays } from "./dialog.js";
import { helpText, useKeys } from "./keys.js";
import { Failure, Loading } from "./parts.js";
import { navigate, path, query } from "./router.js";

/** Address, module in views/, title. A module's default export is the component: ({params, query}) => html. */
const VIEWS = [
  ["/jobs", "jobs", "Jobs"],
  ["/jobs/:id", "job", "Job"],
  ["/jobs/:id/logs", "logs", "Logs"],
  ["/searches", "searches", "Searches"],
  ["/searches/:id", "search", "Search"],
  ["/cluster", "cluster", "Cluster"],
  ["/storage", "storage", "Storage"],
  ["/storage/*", "storage", "Storage"],
  ["/keys", "keys", "Keys"],
];
const LINKS = [
  ["/jobs", "Jobs", "g j"],
  ["/searches", "Searches", "g s"],
  ["/cluster", "Cluster", "g c"],
  ["/storage", "Storage", "g o"],
  ["/keys", "Keys", "g k", (who) => who.root],
];

const patterns = VIEWS.map(([address, module, title]) => {
  const names = [];
  const text = address.replace(/:(\w+)|\*/g, (_, name) => (names.push(name ?? "rest"), name ? "([^/]+)" : "(.*)"));
  return { pattern: new RegExp(`^${text}/?$`), names, module, title };
});
const modules = new Map();

function found(pathname) {
  for (const view of patterns) {
    const match = view.pattern.exec(pathname);
    if (match) return { ...view, params: Object.fromEntries(view.names.map((name, at) => [name, decodeURIComponent(match[at + 1])])) };
  }
  return null;
}

const helping = signal(false);
let leader = 0;

function App() {
  const who = session.value;
  useEffect(() => {
    attempt(findSession);
  }, []);
  if (who === undefined) return html`<${Loading} /><${Overlays} />`;
  return html`${who ? html`<${Shell} who=${who} />` : html`<${SignIn} />`}<${Overlays} />`;
}

function Shell({ who }) {
  if (path.value === "/") navigate("/jobs", { replace: true });
  const links = LINKS.filter(([, , , when]) => !when || when(who));
  const bindings = { "?": ["show these shortcuts", () => (helping.value = true)], g: ["then j s c o k: go to a view", () => (leader = Date.now())] };
  for (const [address, , keys] of links) {
    const key = keys.slice(2);
    if (key !== "j" && key !== "k") bindings[key] = [`after g: ${address.slice(1)}`, () => Date.now() - leader < 1500 && navigate(address)];
  }
  useKeys(bindings);
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <header class="bar">
      <a class="brand" href="/jobs"><${Logo} />Turnout</a>
      <nav aria-label="views">
        ${links.map(([address, text]) => html`<a href=${address} aria-current=${path.value.startsWith(address) ? "page" : null}>${text}</a>`)}
      </nav>
      <div class="status">
        <${Live} />
        <button class="plain" title="keyboard shortcuts (?)" aria-label="keyboard shortcuts" onClick=${() => (helping.value = true)}>?</button>
        <${Theme} />
        ${!who.no_auth && html`<${Who} who=${who} />`}
      </div>
    </header>
    <main id="main" tabindex="-1"><${View} /></main>
    ${helping.value && html`<${Help} />`}
  `;
}

const Logo = () => html`
  <svg class="logo" viewBox="0 0 32 20" aria-hidden="true"><path d="M1 16h30" /><path d="M1 16c12 0 14-12 26-12h4" /></svg>
`;

function View() {
  const view = found(path.value);
  const [loaded, setLoaded] = useState(() => view && modules.get(view.module));
  const [error, forget] = useErrorBoundary((thrown) => console.error(thrown));
  const [missing, setMissing] = useState(null);
  useEffect(() => {
    document.title = `${view?.params.id ?? view?.title ?? "Not found"} · Turnout`;
    if (!view) return;
    setMissing(null);
    if (error) forget();
    if (modules.has(view.module)) setLoaded(modules.get(view.module));
    else {
      import(`./views/${view.module}.js`).then(
        (module) => {
          modules.set(view.module, module);
          setLoaded(module);
        },
        (problem) => setMissing(problem),
      );
    }
  }, [path.value]);
  if (!view) return html`<div class="empty"><h2>This page does not exist</h2><a href="/jobs">Show all jobs</a></div>`;
  if (error || missing) return html`<${Failure} error=${error ?? missing} retry=${() => location.reload()} />`;
  if (!loaded || modules.get(view.module) !== loaded) return html`<${Loading} />`;
  return html`<${loaded.default} key=${`${view.module} ${JSON.stringify(view.params)}`} params=${view.params} query=${query.value} />`;
}

const LIVE = { live: "Live", connecting: "Connecting", lost: "Offline: trying again" };

const Live = () => html`
  <span class="connection ${live.value}" role="status" title=${LIVE[live.value]}><i aria-hidden="true"></i><span>${LIVE[live.value]}</span></span>
`;

function Theme() {
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const change = () => {
    const next = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("turnout-theme", next);
  };
  return html`<button class="plain" title="light or dark" aria-label="light or dark theme" onClick=${change}>◐</button>`;
}

const Who = ({ who }) => html`
  <details class="menu">
    <summary>${who.label || (who.root ? "root" : who.project)}</summary>
    <div>
      <p>Key <code>${who.key}</code></p>
      <p>${who.root ? "Root: all projects" : html`Project <b>${who.project}</b>`}</p>
      <button onClick=${signOut}>Sign out</button>
    </div>
  </details>
`;

function SignIn() {
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Sign in · Turnout";
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    const { key, secret } = Object.fromEntries(new FormData(event.target));
    setBusy(true);
    try {
      // `<id>:<secret>` pasted into the first field, as in TURNOUT_KEY, works too.
      const [id, rest] = key.includes(":") ? key.split(":", 2) : [key, secret];
      await signIn(id, rest);
    } catch (problem) {
      setError(problem.message);
      setBusy(false);
    }
  };
  return html`
    <main class="sign-in">
      <form onSubmit=${submit}>
        <h1><${Logo} />Turnout</h1>
        <p class="quiet">Sign in with a key of this service.</p>
        <label>Key id<input name="key" required autofocus autocomplete="username" spellcheck="false" autocapitalize="off" placeholder="AKID…" /></label>
        <label>Secret<input name="secret" type="password" autocomplete="current-password" /></label>
        ${error && html`<p class="problem" role="alert">${error}</p>`}
        <button class="primary" disabled=${busy}>Sign in</button>
        <p class="quiet small">The root key is in the file <code>root-key</code> of the data directory. <code>turnout keys create</code> makes others.</p>
      </form>
    </main>
  `;
}

const Help = () => html`
  <${Dialog} title="Keyboard shortcuts" close=${() => (helping.value = false)} action=${() => (helping.value = false)}>
    <dl class="keys">${helpText().map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>
    <footer><button class="primary" autofocus>Close</button></footer>
  <//>
`;

render(html`<${App} />`, document.getElementById("app"));
