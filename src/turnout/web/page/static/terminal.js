// The page of a shell: xterm.js, and the connection to the service.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";

const PIECE = 16384; // characters of a paste that go in one message
const ACKNOWLEDGE = 32768; // bytes
const SETTLE_MS = 80;

const holder = document.getElementById("terminal");
const state = document.getElementById("state");
const pageToken = document.querySelector("meta[name=turnout-page-token]").content;

// The ticket in the URL has been used; remove it from the history.
history.replaceState(null, "", location.pathname);

const terminal = new Terminal({
  cursorBlink: true,
  fontFamily: 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace',
  fontSize: 14,
  scrollback: 5000,
  macOptionIsMeta: true,
  screenReaderMode: false,
  theme: { background: "#14171b", foreground: "#e4e2dc", cursor: "#e58e62", selectionBackground: "#e58e6255" },
});
const fit = new FitAddon();
terminal.loadAddon(fit);
terminal.open(holder);
fit.fit();
terminal.focus();

let over = false;
let seen = 0;
let acknowledged = 0;
const encoder = new TextEncoder();
const socket = connect();

terminal.onData(send);
terminal.onResize(({ cols, rows }) => say({ columns: cols, rows }));
terminal.onTitleChange((title) => (document.title = title || document.title));
let settling = 0;
new ResizeObserver(() => {
  clearTimeout(settling);
  settling = setTimeout(() => fit.fit(), SETTLE_MS);
}).observe(holder);

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const size = `columns=${terminal.cols}&rows=${terminal.rows}`;
  const opened = new WebSocket(`${scheme}://${location.host}${location.pathname}/socket?${size}`);
  opened.binaryType = "arraybuffer";
  opened.onopen = () => {
    opened.send(pageToken);
    show("connected", "open");
  };
  opened.onmessage = ({ data }) => {
    if (typeof data === "string") ended(JSON.parse(data));
    else terminal.write(new Uint8Array(data), () => acknowledge(data.byteLength));
  };
  opened.onclose = () => over || ended({ error: "the connection was lost: ask for a new link" });
  return opened;
}

/** The service limits the output that is not acknowledged, so a program cannot fill the browser's memory. */
function acknowledge(count) {
  seen += count;
  if (seen - acknowledged < ACKNOWLEDGE) return;
  acknowledged = seen;
  say({ seen });
}

function ended({ exit, reason, error }) {
  over = true;
  const text = error ?? reason ?? (exit === null ? "process exited" : `process exited with code ${exit}`);
  terminal.write(`\x1b[?1049l\x1b[0m\r\n[${text}]\r\n\x1b[?25l`);
  show(error ? "closed" : text, "over");
}

function show(text, kind) {
  state.textContent = text;
  state.className = kind;
}

function say(message) {
  if (!over && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

function send(text) {
  if (over || socket.readyState !== WebSocket.OPEN) return;
  for (let at = 0; at < text.length; at += PIECE) socket.send(encoder.encode(text.slice(at, at + PIECE)));
}
