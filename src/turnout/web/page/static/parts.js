// Small parts that all views share.

import { html } from "./html.js";
import { ago, clock, duration, milliseconds, now } from "./format.js";

export const APIS = { tia: "TI-A", modelarts: "ModelArts", vertex: "Vertex" };
export const STATES = ["queued", "preparing", "running", "stopping", "succeeded", "failed", "stopped"];
const LIVE = ["queued", "preparing", "running", "stopping"];

export const isLive = (state) => LIVE.includes(state);

/** The state of a job, replica or trial. */
export const Badge = ({ state }) => html`<span class="badge ${state}"><i aria-hidden="true"></i>${state}</span>`;

export const Api = ({ name }) => html`<span class="api">${APIS[name] ?? name}</span>`;

/** A time as `5 min ago`, with the exact one as its title. */
export const Ago = ({ at }) =>
  at ? html`<time datetime=${new Date(milliseconds(at)).toISOString()} title=${clock(at)}>${ago(at, now.value)}</time>` : null;

/** How long from `from` to `to`, or until now. */
export const Lasting = ({ from, to }) =>
  from ? html`<span class="number">${duration(((to ? milliseconds(to) : now.value) - milliseconds(from)) / 1000)}</span>` : null;

/** What to show where there is nothing. */
export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2>${children}</div>`;

/** An error of a request, with a button to try again. */
export const Failure = ({ error, retry }) => html`
  <div class="failure" role="alert">
    <p>${error.message}</p>
    ${retry && html`<button onClick=${retry}>Try again</button>`}
  </div>
`;

export const Loading = () => html`<div class="loading" role="status" aria-label="loading"></div>`;

/** Links with the one of this view marked: [{href, text, current}]. */
export const Tabs = ({ label, links }) => html`
  <nav class="tabs" aria-label=${label}>
    ${links.map(({ href, text, current }) => html`<a href=${href} aria-current=${current ? "page" : null}>${text}</a>`)}
  </nav>
`;

/** A part of a view with a heading. */
export const Section = ({ title, aside, children, ...rest }) => html`
  <section class="section" ...${rest}>
    <header><h2>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</header>
    ${children}
  </section>
`;
