// Times, sizes and numbers as people read them. The API's times are nanoseconds since 1970.

import { signal } from "@preact/signals";

/** Milliseconds since 1970; moves every second while the page is visible. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
document.addEventListener("visibilitychange", () => (now.value = Date.now()));

export const milliseconds = (ns) => Math.floor(ns / 1e6);

/** `2026-01-31 12:00:05` in the reader's zone. */
export function clock(ns, { date = true, parts = 0 } = {}) {
  const at = new Date(milliseconds(ns));
  const two = (value) => String(value).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const fraction = parts ? `.${String(at.getMilliseconds()).padStart(3, "0").slice(0, parts)}` : "";
  return date ? `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}${fraction}` : time + fraction;
}

/** `2 h 5 min`; `seconds` may have a fraction. */
export function duration(seconds) {
  if (seconds < 0) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** `5 min ago`. */
export function ago(ns, at = now.value) {
  const seconds = Math.max(0, (at - milliseconds(ns)) / 1000);
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

/** `1.5 GiB`. */
export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${count >= 100 || !unit ? Math.round(count) : count.toPrecision(count < 10 ? 2 : 3)} ${units[unit]}`;
}

/** At most five significant digits, without a tail of zeros. */
export function number(value) {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size && (size < 1e-4 || size >= 1e7)) return value.toExponential(3);
  return String(Number(value.toPrecision(5)));
}

export const count = (value, one, many = `${one}s`) => `${value.toLocaleString("en")} ${value === 1 ? one : many}`;
