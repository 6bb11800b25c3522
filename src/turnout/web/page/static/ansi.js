// The text of a log line: colours become classes, other control sequences are left out, other characters become symbols.

const SEQUENCE = /\x1b(?:\[([0-9;:?<=>!]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_]|[ -/]+[0-~])?/g;
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g;
const LEVELS = [0, 95, 135, 175, 215, 255];

/** [{text, class, style}] of a line. A progress bar that returned to the start of its line shows its last state. */
export function spans(line) {
  if (line.includes("\r")) line = line.replace(/\r+$/, "").split("\r").at(-1);
  if (!line.includes("\x1b")) return [{ text: visible(line) }];
  const found = [];
  let style = {};
  let from = 0;
  const add = (to) => to > from && found.push({ text: visible(line.slice(from, to)), ...drawn(style) });
  for (const match of line.matchAll(SEQUENCE)) {
    add(match.index);
    from = match.index + match[0].length;
    if (match[2] === "m") style = changed(style, match[1]);
  }
  add(line.length);
  return found.length ? found : [{ text: "" }];
}

/** The line without its control sequences. */
export const plain = (line) => spans(line).map(({ text }) => text).join("");

/** Characters that would be invisible, or turn the direction of the text, are shown as symbols. */
function visible(text) {
  return text.replace(CONTROL, (one) => {
    const code = one.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "␡" : "�";
  });
}

function changed(style, parameters) {
  const codes = (parameters || "0").split(/[;:]/).map(Number);
  const next = { ...style };
  while (codes.length) {
    const code = codes.shift();
    if (code === 0) for (const name of Object.keys(next)) delete next[name];
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 27) next.inverse = false;
    else if (code >= 30 && code < 38) next.front = code - 30;
    else if (code >= 90 && code < 98) next.front = code - 82;
    else if (code >= 40 && code < 48) next.back = code - 40;
    else if (code >= 100 && code < 108) next.back = code - 92;
    else if (code === 39) delete next.front;
    else if (code === 49) delete next.back;
    else if (code === 38 || code === 48) next[code === 38 ? "front" : "back"] = extended(codes);
  }
  return next;
}

function extended(codes) {
  const kind = codes.shift();
  if (kind === 2) return `rgb(${codes.splice(0, 3).map((part) => Math.min(255, part || 0))})`;
  const at = kind === 5 ? codes.shift() : undefined;
  if (!(at >= 0 && at < 256)) return undefined;
  if (at < 16) return at;
  if (at > 231) return `rgb(${Array(3).fill(8 + 10 * (at - 232))})`;
  return `rgb(${[Math.floor((at - 16) / 36), Math.floor((at - 16) / 6) % 6, (at - 16) % 6].map((part) => LEVELS[part])})`;
}

function drawn({ front, back, ...flags }) {
  const names = Object.keys(flags).filter((name) => flags[name]);
  const style = {};
  if (typeof front === "number") names.push(`f${front}`);
  else if (front) style.color = front;
  if (typeof back === "number") names.push(`b${back}`);
  else if (back) style.backgroundColor = back;
  return { class: names.length ? names.join(" ") : undefined, style };
}
