// Lines of a log, with colours and with the matches of a search marked.

import { html } from "./html.js";
import { spans } from "./ansi.js";

export const Line = ({ text, find = "" }) =>
  html`<div class="line-text">${spans(text).map((span) => html`<span class=${span.class} style=${span.style}>${marked(span.text, find)}</span>`)}</div>`;

function marked(text, find) {
  if (!find) return text;
  const lower = text.toLowerCase();
  const wanted = find.toLowerCase();
  const parts = [];
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
    parts.push(text.slice(from, at), html`<mark>${text.slice(at, at + wanted.length)}</mark>`);
    from = at + wanted.length;
  }
  return [...parts, text.slice(from)];
}
