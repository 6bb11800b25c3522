// The terminal page: draws the screen, sends input, and holds the connection to the service.

import { Screen } from "./screen.js";

const BASE = [
  "#2b303b", "#d16969", "#7fbf7f", "#e5b567", "#6c9ef8", "#b48ead", "#5fb3b3", "#c0c5ce",
  "#65737e", "#f08080", "#9fdc9f", "#ffd580", "#8fb7ff", "#d0a8cc", "#84d0d0", "#ffffff",
];
const LEVELS = [0, 95, 135, 175, 215, 255];
const PIECE = 16384; // characters of a paste that go in one message
const ACKNOWLEDGE = 32768; // bytes

const holder = document.getElementById("terminal");
const keys = document.getElementById("keys");
const state = document.getElementById("state");
const ruler = document.getElementById("ruler");
const pageToken = document.querySelector("meta[name=turnout-page-token]").content;

// The ticket in the URL has been used; remove it from the history.
history.replaceState(null, "", location.pathname);

let cell = { width: 8, height: 18 };
let socket = null;
let over = false;
let drawing = false;
const encoder = new TextEncoder();
const screen = new Screen(80, 24, send);
const page = element("div", "page");
const view = element("div");
let lastUnder = null;
page.append(view);
holder.append(page);

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const size = `columns=${screen.columns}&rows=${screen.rows}`;
  const decoder = new TextDecoder();
  socket = new WebSocket(`${scheme}://${location.host}${location.pathname}/socket?${size}`);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => {
    socket.send(pageToken);
    showState("connected", "open");
  };
  socket.onmessage = ({ data }) => {
    if (typeof data === "string") ended(JSON.parse(data));
    else {
      screen.write(decoder.decode(data, { stream: true }));
      acknowledge(data.byteLength);
    }
    draw();
  };
  socket.onclose = () => {
    if (!over) ended({ error: "the connection was lost: ask for a new link" });
  };
}

let seen = 0;
let acknowledged = 0;

/** The service limits the output that is not acknowledged. */
function acknowledge(bytes) {
  seen += bytes;
  if (seen - acknowledged < ACKNOWLEDGE || socket.readyState !== WebSocket.OPEN) return;
  acknowledged = seen;
  socket.send(JSON.stringify({ seen }));
}

function ended({ exit, reason, error }) {
  over = true;
  const text = error ?? reason ?? (exit === null ? "process exited" : `process exited with code ${exit}`);
  if (screen.alternate) screen.write("\x1b[?1049l");
  screen.write(`\x1b[0m${screen.x ? "\r\n" : ""}[${text}]\r\n`);
  screen.cursorShown = false;
  showState(error ? "closed" : text, "over");
  draw();
}

function showState(text, kind) {
  state.textContent = text;
  state.className = kind;
}

function send(text) {
  if (over || socket?.readyState !== WebSocket.OPEN) return;
  for (let at = 0; at < text.length; at += PIECE) socket.send(encoder.encode(text.slice(at, at + PIECE)));
}

// Size.

function measure() {
  const box = ruler.getBoundingClientRect();
  cell = { width: box.width / ruler.textContent.length || 8, height: 18 };
  const style = getComputedStyle(holder);
  const inner = (size, before, after) => size - parseFloat(style[before]) - parseFloat(style[after]);
  const columns = Math.floor(inner(holder.clientWidth, "paddingLeft", "paddingRight") / cell.width);
  const rows = Math.floor(inner(holder.clientHeight, "paddingTop", "paddingBottom") / cell.height);
  screen.resize(Math.min(Math.max(columns, 20), 500), Math.min(Math.max(rows, 4), 200));
  draw();
}

let settling = 0;
new ResizeObserver(() => {
  clearTimeout(settling);
  settling = setTimeout(() => {
    const before = `${screen.columns} ${screen.rows}`;
    measure();
    if (before === `${screen.columns} ${screen.rows}` || socket?.readyState !== WebSocket.OPEN) return;
    socket.send(JSON.stringify({ columns: screen.columns, rows: screen.rows }));
  }, 80);
}).observe(holder);

// Drawing: only visible rows have DOM nodes.

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const past = screen.alternate ? 0 : screen.history.length;
    const height = (past + screen.rows) * cell.height;
    const follows = holder.scrollHeight - holder.scrollTop - holder.clientHeight < 2 * cell.height;
    page.style.height = `${height}px`;
    if (follows) holder.scrollTop = holder.scrollHeight;
    const first = Math.max(0, Math.floor(holder.scrollTop / cell.height) - 1);
    const last = first + Math.ceil(holder.clientHeight / cell.height) + 2;
    const rows = [...(past ? screen.history.slice(first, last) : []), ...screen.lines.slice(Math.max(0, first - past), Math.max(0, last - past))];
    view.style.transform = `translateY(${first * cell.height}px)`;
    order(rows);
    if (screen.title) document.title = screen.title;
  });
}

/** Each row keeps its own node when it moves. */
function order(rows) {
  const under = screen.cursorShown ? screen.lines[screen.y] : null;
  for (const row of [under, lastUnder]) if (row) row.changed = true;
  lastUnder = under;
  for (const row of rows) row.node ??= element("div");
  const wanted = new Set(rows.map((row) => row.node));
  for (const node of [...view.children]) if (!wanted.has(node)) node.remove();
  let next = view.firstChild;
  for (const row of rows) {
    if (row.changed) fill(row, row === under ? screen.x : -1);
    if (row.node === next) next = next.nextSibling;
    else view.insertBefore(row.node, next);
  }
}

function fill(row, cursor) {
  const spans = [];
  let run = null;
  let end = row.cells.length;
  while (end > cursor + 1 && end > 0 && isPlain(row.cells[end - 1])) end -= 1;
  row.cells.slice(0, end).forEach(({ text, style }, x) => {
    const wide = row.cells[x + 1]?.text === "";
    if (run && run.style === style && x !== cursor && x !== cursor + 1 && !wide && text && !run.wide) run.text += text;
    else if (text) spans.push((run = { text, style, wide, cursor: x === cursor }));
  });
  row.node.replaceChildren(...spans.map(span));
  row.changed = false;
}

holder.addEventListener("scroll", draw);

function isPlain({ text, style }) {
  return !text.trim() && style.back === undefined && !style.inverse && !style.underline;
}

function span({ text, style, wide, cursor }) {
  if (!cursor && !wide && !Object.keys(style).length) return document.createTextNode(text);
  const node = element("span", cursor ? "cursor" : "");
  node.textContent = text;
  const front = colour(style.bold && style.front < 8 ? style.front + 8 : style.front);
  const back = colour(style.back);
  const [ink, paper] = style.inverse ? [back ?? "#16181d", front ?? "#d8dbe2"] : [front, back];
  if (ink) node.style.color = style.hidden ? "transparent" : ink;
  if (paper) node.style.backgroundColor = paper;
  if (style.bold) node.style.fontWeight = "bold";
  if (style.dim) node.style.opacity = 0.6;
  if (style.italic) node.style.fontStyle = "italic";
  const lines = [style.underline && "underline", style.strike && "line-through"].filter(Boolean);
  if (lines.length) node.style.textDecoration = lines.join(" ");
  if (wide) node.style.width = `${2 * cell.width}px`;
  return node;
}

function colour(value) {
  if (value === undefined || typeof value === "string") return value;
  if (value < 16) return BASE[value];
  if (value > 231) return `rgb(${Array(3).fill(8 + 10 * (value - 232))})`;
  const at = value - 16;
  return `rgb(${[Math.floor(at / 36), Math.floor(at / 6) % 6, at % 6].map((part) => LEVELS[part])})`;
}

function element(name, kind = "") {
  const node = document.createElement(name);
  if (kind) node.className = kind;
  return node;
}

// Keys.

const ARROWS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
const TILDE = {
  Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21, F11: 23, F12: 24,
};
const FUNCTION = { F1: "P", F2: "Q", F3: "R", F4: "S" };
const SIMPLE = { Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b" };

/** The sequence that a key sends; undefined if the browser handles it or it arrives as text input. */
function meaning(event) {
  const { key, ctrlKey, altKey, shiftKey, metaKey } = event;
  if (metaKey || (ctrlKey && shiftKey && "cCvV".includes(key))) return undefined;
  const held = 1 + (shiftKey ? 1 : 0) + (altKey ? 2 : 0) + (ctrlKey ? 4 : 0);
  if (ARROWS[key]) {
    if (held > 1) return `\x1b[1;${held}${ARROWS[key]}`;
    return (screen.applicationKeys ? "\x1bO" : "\x1b[") + ARROWS[key];
  }
  if (FUNCTION[key]) return held > 1 ? `\x1b[1;${held}${FUNCTION[key]}` : `\x1bO${FUNCTION[key]}`;
  if (TILDE[key]) return held > 1 ? `\x1b[${TILDE[key]};${held}~` : `\x1b[${TILDE[key]}~`;
  if (key === "Tab" && shiftKey) return "\x1b[Z";
  if (SIMPLE[key]) return (altKey ? "\x1b" : "") + SIMPLE[key];
  if (ctrlKey && key.length === 1) {
    const code = key === " " ? 64 : key.toUpperCase().charCodeAt(0);
    if (key === "?") return "\x7f";
    if (code >= 64 && code <= 95) return (altKey ? "\x1b" : "") + String.fromCharCode(code - 64);
    return undefined;
  }
  if (altKey && key.length === 1) return "\x1b" + key;
  return undefined;
}

keys.addEventListener("keydown", (event) => {
  if (event.isComposing || event.keyCode === 229) return;
  if (event.shiftKey && ["PageUp", "PageDown"].includes(event.key)) {
    holder.scrollBy(0, (event.key === "PageUp" ? -1 : 1) * (holder.clientHeight - cell.height));
    event.preventDefault();
    return;
  }
  // With text selected, Ctrl-C copies it, as in any page.
  if (event.ctrlKey && event.key === "c" && String(getSelection())) return;
  const text = meaning(event);
  if (text === undefined) return;
  event.preventDefault();
  typed(text);
});

keys.addEventListener("input", (event) => {
  if (event.isComposing) return;
  typed(keys.value);
  keys.value = "";
});
keys.addEventListener("compositionend", () => {
  typed(keys.value);
  keys.value = "";
});

keys.addEventListener("paste", (event) => {
  event.preventDefault();
  // Remove the sequence that would end the bracketed paste.
  const text = event.clipboardData.getData("text").replaceAll("\x1b", "").replace(/\r?\n/g, "\r");
  typed(screen.bracketedPaste ? `\x1b[200~${text}\x1b[201~` : text);
});

function typed(text) {
  if (!text) return;
  holder.scrollTop = holder.scrollHeight;
  send(text);
}

function focusKeys() {
  if (!String(getSelection())) keys.focus({ preventScroll: true });
}
holder.addEventListener("mouseup", focusKeys);
addEventListener("focus", focusKeys);
keys.addEventListener("focus", () => holder.classList.add("focused"));
keys.addEventListener("blur", () => holder.classList.remove("focused"));
focusKeys();
measure();
connect();
