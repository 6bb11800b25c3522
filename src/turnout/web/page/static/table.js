// A table whose rows are links, can be selected, and are reached with j and k.

import { html, useEffect, useRef, useState } from "./html.js";
import { useKeys } from "./keys.js";
import { navigate } from "./router.js";

/**
 * `columns`: [{name, title, cell: (row) => …, kind?, sort?}]; `kind` is a class, such as "number".
 * `rows` with `id: (row) => string`, `href: (row) => string`.
 * `selected`: a signal of a Set of ids; without it nothing can be selected.
 * `order`, `onOrder`: the column by which rows are in order ("-name": the largest first), and what a click on a heading does.
 */
export function Table({ columns, rows, id, href, selected, label, order = "", onOrder }) {
  const [current, setCurrent] = useState("");
  const body = useRef();
  const ids = rows.map(id);
  const move = (by) => {
    const at = ids.indexOf(current);
    const next = ids[Math.max(0, Math.min(ids.length - 1, at < 0 ? 0 : at + by))];
    if (next === undefined) return;
    setCurrent(next);
    const row = body.current.children[ids.indexOf(next)];
    row.querySelector("a")?.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };
  const bindings = {
    j: ["next row", () => move(1)],
    k: ["row before", () => move(-1)],
    Enter: ["open it", () => current && href && navigate(href(rows[ids.indexOf(current)]))],
  };
  if (selected) bindings.x = ["select it", () => current && toggle(selected, current)];
  useKeys(bindings);
  return html`
    <div class="table" role="region" aria-label=${label} tabindex="-1">
      <table>
        <thead>
          <tr>
            ${selected && html`<th class="select"><${SelectAll} ids=${ids} selected=${selected} /></th>`}
            ${columns.map((column) => html`<${Heading} key=${column.name} ...${{ column, order, onOrder }} />`)}
          </tr>
        </thead>
        <tbody ref=${body}>
          ${rows.map((row, at) => html`<${Row} key=${ids[at]} ...${{ row, columns, href, selected, id: ids[at] }} current=${ids[at] === current} focus=${setCurrent} />`)}
        </tbody>
      </table>
    </div>
  `;
}

function Row({ row, columns, href, selected, id, current, focus }) {
  const open = (event) => {
    if (!href || event.target.closest("a, button, input, label") || String(getSelection())) return;
    navigate(href(row));
  };
  const chosen = selected?.value.has(id);
  return html`
    <tr class=${`${current ? "current" : ""} ${href ? "opens" : ""}`} aria-selected=${selected ? chosen : null} onClick=${open} onFocusIn=${() => focus(id)}>
      ${selected && html`<td class="select"><label><input type="checkbox" aria-label="select" checked=${chosen} onChange=${() => toggle(selected, id)} /></label></td>`}
      ${columns.map((column) => html`<td key=${column.name} class=${`${column.name} ${column.kind ?? ""}`}>${column.cell(row)}</td>`)}
    </tr>
  `;
}

function Heading({ column, order, onOrder }) {
  const { name, title, kind, sort } = column;
  if (!sort || !onOrder) return html`<th class=${`${name} ${kind ?? ""}`}>${title}</th>`;
  const direction = order === sort ? "ascending" : order === `-${sort}` ? "descending" : null;
  const next = direction === "descending" ? sort : `-${sort}`;
  return html`
    <th class=${`${name} ${kind ?? ""}`} aria-sort=${direction}>
      <button class="plain" onClick=${() => onOrder(next)}>${title}<span aria-hidden="true">${{ ascending: "↑", descending: "↓" }[direction] ?? ""}</span></button>
    </th>
  `;
}

function SelectAll({ ids, selected }) {
  const box = useRef();
  const chosen = ids.filter((one) => selected.value.has(one)).length;
  useEffect(() => {
    box.current.indeterminate = chosen > 0 && chosen < ids.length;
  });
  const all = () => {
    selected.value = chosen === ids.length ? new Set() : new Set(ids);
  };
  return html`<label><input ref=${box} type="checkbox" aria-label="select all" checked=${ids.length > 0 && chosen === ids.length} onChange=${all} /></label>`;
}

function toggle(selected, id) {
  const next = new Set(selected.value);
  if (!next.delete(id)) next.add(id);
  selected.value = next;
}
