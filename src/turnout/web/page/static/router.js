// The address of the view: signals over the History API. Filters are in the query, so that a view can be sent as a link.

import { batch, computed, signal } from "@preact/signals";

export const path = signal(location.pathname);
const search = signal(location.search);
/** The query as an object; of a parameter that is repeated, the values are joined by a line end. */
export const query = computed(() => {
  const found = {};
  for (const [name, value] of new URLSearchParams(search.value)) {
    found[name] = name in found ? `${found[name]}\n${value}` : value;
  }
  return found;
});

/** Shows another view. `replace`: without an entry in the history. */
export function navigate(address, { replace = false } = {}) {
  const target = new URL(address, location.href);
  if (target.href === location.href) return;
  const moved = target.pathname !== location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", target);
  read();
  if (moved && !target.hash) scrollTo(0, 0);
}

/** Changes parameters of the query; "" or null removes one. */
export function setQuery(changes, { replace = true } = {}) {
  navigate(address(location.pathname, { ...query.value, ...changes }) + location.hash, { replace });
}

/** `/jobs?state=running`; parameters that are empty are left out. */
export function address(pathname, parameters = {}) {
  const pairs = Object.entries(parameters).flatMap(([name, value]) =>
    value === null || value === undefined || value === "" ? [] : `${value}`.split("\n").map((one) => [name, one]),
  );
  const text = new URLSearchParams(pairs).toString();
  return text ? `${pathname}?${text}` : pathname;
}

function read() {
  batch(() => {
    path.value = location.pathname;
    search.value = location.search;
  });
}

addEventListener("popstate", read);

// Links within the page do not load it again.
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (link.pathname.startsWith("/turnout/")) return;
  event.preventDefault();
  navigate(link.href);
});
