// The screen of a terminal: turns text and control sequences into rows of cells. Independent of the browser.

const PLAIN = Object.freeze({});
const BLANK = Object.freeze({ text: " ", style: PLAIN });
const MOST_HISTORY = 5000;
const LONGEST_SEQUENCE = 4096;
const LINES = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"; // the characters ` to ~ in the line-drawing set
const WIDE = /^[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]$/u;
const COMBINING = /^[\p{Mn}\p{Me}\u200b-\u200f\ufe0f]$/u;

export class Row {
  constructor(columns, style = PLAIN) {
    this.cells = new Array(columns).fill(blank(style));
    this.changed = true;
  }

  fit(columns) {
    while (this.cells.length < columns) this.cells.push(BLANK);
    this.cells.length = columns;
    this.changed = true;
  }

  get text() {
    return this.cells.map((cell) => cell.text).join("").trimEnd();
  }
}

export class Screen {
  /** `reply` is called with the terminal's own answers to the program. */
  constructor(columns, rows, reply = () => {}) {
    this.columns = columns;
    this.rows = rows;
    this.reply = reply;
    this.history = [];
    this.reset();
  }

  reset() {
    this.main = this.lines = this.#empty();
    this.x = this.y = 0;
    this.style = PLAIN;
    this.top = 0;
    this.bottom = this.rows - 1;
    this.wraps = true;
    this.wrapNext = false;
    this.inserts = false;
    this.originMode = false;
    this.cursorShown = true;
    this.applicationKeys = false;
    this.bracketedPaste = false;
    this.charsets = ["B", "B"];
    this.charset = 0;
    this.saved = null;
    this.title = "";
    this.last = " ";
    this.#state = ground;
    this.#sequence = "";
    this.tabs = new Set();
    for (let x = 8; x < 2000; x += 8) this.tabs.add(x);
  }

  #state = ground;
  #sequence = "";

  get alternate() {
    return this.lines !== this.main;
  }

  write(text) {
    for (const character of text) this.#state = this.#take(character);
  }

  resize(columns, rows) {
    this.columns = columns;
    for (const row of [...this.history, ...this.main, ...(this.alternate ? this.lines : [])]) row.fit(columns);
    for (const lines of new Set([this.main, this.lines])) this.#fitRows(lines, rows);
    this.rows = rows;
    this.top = 0;
    this.bottom = rows - 1;
    this.wrapNext = false;
    this.#moveTo(this.x, this.y);
  }

  #fitRows(lines, rows) {
    const current = lines === this.lines;
    while (lines.length > rows) {
      // Drop empty rows below the cursor first; otherwise move the top rows into the history.
      if (!current || this.y < lines.length - 1) {
        lines.pop();
      } else {
        const gone = lines.shift();
        if (lines === this.main) this.#remember(gone);
        this.y -= 1;
      }
    }
    while (lines.length < rows) lines.push(new Row(this.columns));
  }

  // The parser: each state takes a character and returns the next state.

  #take(character) {
    const code = character.codePointAt(0);
    if (this.#state !== string && (code === 0x18 || code === 0x1a)) return ground;
    if (this.#state !== string && code < 0x20 && code !== 0x1b) {
      this.#control(code);
      return this.#state;
    }
    switch (this.#state) {
      case escape:
        return this.#escape(character);
      case control:
        return this.#controlSequence(character);
      case charset:
        this.charsets[this.#sequence === "(" ? 0 : 1] = character;
        return ground;
      case string:
        return this.#string(character, code);
      case skip:
        return ground;
    }
    if (code === 0x1b) return escape;
    if (code !== 0x7f) this.#print(character);
    return ground;
  }

  #control(code) {
    if (code === 8) this.#moveTo(this.x - 1, this.y);
    else if (code === 9) this.#tab();
    else if (code >= 10 && code <= 12) this.#lineFeed();
    else if (code === 13) this.#moveTo(0, this.y);
    else if (code === 14) this.charset = 1;
    else if (code === 15) this.charset = 0;
  }

  #escape(character) {
    this.#sequence = "";
    switch (character) {
      case "[":
        return control;
      case "]": case "P": case "X": case "^": case "_":
        this.#sequence = character;
        return string;
      case "(": case ")":
        this.#sequence = character;
        return charset;
      case "*": case "+": case "#": case "%": case " ":
        return skip;
      case "\x1b":
        return escape;
      case "7": this.#save(); break;
      case "8": this.#restore(); break;
      case "D": this.#lineFeed(); break;
      case "E": this.#moveTo(0, this.y); this.#lineFeed(); break;
      case "H": this.tabs.add(this.x); break;
      case "M": this.#reverseLineFeed(); break;
      case "c": this.reset(); break;
    }
    return ground;
  }

  #string(character, code) {
    // Ends with BEL, or with ESC and a backslash, which is then parsed as an escape without effect.
    if (code === 7 || code === 0x1b) {
      const found = /^\](?:0|2);(.*)$/s.exec(this.#sequence);
      if (found) this.title = found[1];
      return code === 7 ? ground : escape;
    }
    if (this.#sequence.length < LONGEST_SEQUENCE) this.#sequence += character;
    return string;
  }

  #controlSequence(character) {
    if (character === "\x1b") return escape;
    if (character < "@") {
      if (this.#sequence.length < LONGEST_SEQUENCE) this.#sequence += character;
      return control;
    }
    const [, prefix, numbers, between] = /^([<-?]?)([\d;:]*)(.*)$/s.exec(this.#sequence);
    const given = numbers.split(/[;:]/).map((text) => Math.min(Number(text) || 0, 65535));
    if (prefix === "?" && !between && "hl".includes(character)) for (const mode of given) this.#setMode(mode, character === "h");
    else if (prefix === ">" && character === "c") this.reply("\x1b[>0;0;0c");
    else if (!prefix && between === "!" && character === "p") this.#softReset();
    else if (!prefix && !between) this.#perform(character, given);
    return ground;
  }

  #perform(character, given) {
    const first = given[0];
    const count = first || 1;
    const up = this.y >= this.top ? this.top : 0;
    const down = this.y <= this.bottom ? this.bottom : this.rows - 1;
    switch (character) {
      case "A": return this.#moveTo(this.x, Math.max(this.y - count, up));
      case "B": case "e": return this.#moveTo(this.x, Math.min(this.y + count, down));
      case "C": case "a": return this.#moveTo(this.x + count, this.y);
      case "D": return this.#moveTo(this.x - count, this.y);
      case "E": return this.#moveTo(0, Math.min(this.y + count, down));
      case "F": return this.#moveTo(0, Math.max(this.y - count, up));
      case "G": case "`": return this.#moveTo(count - 1, this.y);
      case "H": case "f": return this.#place((given[1] || 1) - 1, count - 1);
      case "I": for (let n = 0; n < Math.min(count, this.columns); n++) this.#tab(); return;
      case "Z": for (let n = 0; n < Math.min(count, this.columns); n++) this.#backTab(); return;
      case "J": return this.#eraseDisplay(first);
      case "K": return this.#eraseLine(first);
      case "L": return this.#scroll(this.y, -count);
      case "M": return this.#scroll(this.y, count);
      case "P": return this.#shift(-count);
      case "@": return this.#shift(count);
      case "X": return this.#erase(this.y, this.x, this.x + count);
      case "S": return this.#scroll(this.top, count, true);
      case "T": return this.#scroll(this.top, -count);
      case "b": for (let n = 0; n < Math.min(count, 4000); n++) this.#print(this.last); return;
      case "c": return this.reply("\x1b[?1;2c");
      case "d": return this.#place(this.x, count - 1);
      case "g": return first === 3 ? this.tabs.clear() : void this.tabs.delete(this.x);
      case "h": case "l": if (given.includes(4)) this.inserts = character === "h"; return;
      case "m": return this.#setStyle(given);
      case "n": return this.reply(first === 6 ? `\x1b[${this.y + 1};${this.x + 1}R` : "\x1b[0n");
      case "r": return this.#setMargins(count - 1, (given[1] || this.rows) - 1);
      case "s": return this.#save();
      case "u": return this.#restore();
    }
  }

  #setMode(mode, on) {
    switch (mode) {
      case 1: this.applicationKeys = on; break;
      case 6: this.originMode = on; this.#place(0, 0); break;
      case 7: this.wraps = on; break;
      case 25: this.cursorShown = on; break;
      case 47: case 1047: this.#useAlternate(on); break;
      case 1048: if (on) this.#save(); else this.#restore(); break;
      case 1049:
        if (on && !this.alternate) this.#save();
        this.#useAlternate(on);
        if (!on) this.#restore();
        break;
      case 2004: this.bracketedPaste = on; break;
    }
  }

  #useAlternate(on) {
    if (on === this.alternate) return;
    this.lines = on ? this.#empty() : this.main;
  }

  #softReset() {
    this.style = PLAIN;
    this.cursorShown = this.wraps = true;
    this.applicationKeys = this.originMode = this.inserts = false;
    this.#setMargins(0, this.rows - 1);
  }

  // The cells.

  #print(character) {
    const plain = character < "\u0300";
    if (!plain && COMBINING.test(character)) return this.#combine(character);
    const set = this.charsets[this.charset];
    if (set === "0" && character >= "`" && character <= "~") character = LINES[character.charCodeAt(0) - 96];
    this.last = character;
    const width = !plain && WIDE.test(character) ? 2 : 1;
    if (this.wrapNext || this.x + width > this.columns) this.#wrap();
    if (this.inserts) this.#shift(width);
    const row = this.lines[this.y];
    row.cells[this.x] = { text: character, style: this.style };
    if (width === 2 && this.x + 1 < this.columns) row.cells[this.x + 1] = { text: "", style: this.style };
    row.changed = true;
    this.x += width;
    if (this.x >= this.columns) {
      this.x = this.columns - 1;
      this.wrapNext = this.wraps;
    }
  }

  #combine(character) {
    const row = this.lines[this.y];
    const at = this.wrapNext ? this.x : Math.max(this.x - 1, 0);
    const whose = row.cells[at].text === "" && at ? at - 1 : at;
    const { text, style } = row.cells[whose];
    if (text.length > 16) return;
    row.cells[whose] = { text: text + character, style };
    row.changed = true;
  }

  #wrap() {
    if (!this.wraps) {
      this.x = Math.max(0, this.columns - 2);
      return;
    }
    this.x = 0;
    this.#lineFeed();
  }

  #lineFeed() {
    this.wrapNext = false;
    if (this.y === this.bottom) this.#scroll(this.top, 1, true);
    else if (this.y < this.rows - 1) this.y += 1;
  }

  #reverseLineFeed() {
    this.wrapNext = false;
    if (this.y === this.top) this.#scroll(this.top, -1);
    else if (this.y > 0) this.y -= 1;
  }

  /** Scroll the rows from `first` to the bottom margin up by `count`, or down if it is negative. */
  #scroll(first, count, keeps = false) {
    if (first < this.top || first > this.bottom) return;
    const remembers = keeps && !this.alternate && first === 0;
    for (let n = Math.min(Math.abs(count), this.bottom - first + 1); n > 0; n--) {
      if (count > 0) {
        const [gone] = this.lines.splice(first, 1);
        if (remembers) this.#remember(gone);
        this.lines.splice(this.bottom, 0, new Row(this.columns, this.style));
      } else {
        this.lines.splice(this.bottom, 1);
        this.lines.splice(first, 0, new Row(this.columns, this.style));
      }
    }
  }

  #remember(row) {
    this.history.push(row);
    if (this.history.length > MOST_HISTORY) this.history.shift();
  }

  #shift(count) {
    const row = this.lines[this.y];
    const many = Math.min(Math.abs(count), this.columns - this.x);
    const fresh = Array.from({ length: many }, () => blank(this.style));
    if (count > 0) row.cells.splice(this.x, 0, ...fresh);
    else {
      row.cells.splice(this.x, many);
      row.cells.push(...fresh);
    }
    row.cells.length = this.columns;
    row.changed = true;
  }

  #erase(y, from, to) {
    const row = this.lines[y];
    for (let x = Math.max(from, 0); x < Math.min(to, this.columns); x++) row.cells[x] = blank(this.style);
    row.changed = true;
    this.wrapNext = false;
  }

  #eraseLine(what) {
    this.#erase(this.y, what === 0 ? this.x : 0, what === 1 ? this.x + 1 : this.columns);
  }

  #eraseDisplay(what) {
    if (what === 3) this.history.length = 0;
    if (what === 3 || what > 3) return;
    for (let y = 0; y < this.rows; y++) {
      if ((what === 0 && y > this.y) || (what === 1 && y < this.y) || what === 2) this.#erase(y, 0, this.columns);
    }
    if (what !== 2) this.#eraseLine(what);
  }

  #tab() {
    let x = this.x + 1;
    while (x < this.columns - 1 && !this.tabs.has(x)) x++;
    this.#moveTo(x, this.y);
  }

  #backTab() {
    let x = this.x - 1;
    while (x > 0 && !this.tabs.has(x)) x--;
    this.#moveTo(x, this.y);
  }

  #place(x, y) {
    if (this.originMode) this.#moveTo(x, Math.min(y + this.top, this.bottom));
    else this.#moveTo(x, y);
  }

  #moveTo(x, y) {
    this.x = Math.min(Math.max(x, 0), this.columns - 1);
    this.y = Math.min(Math.max(y, 0), this.rows - 1);
    this.wrapNext = false;
  }

  #setMargins(top, bottom) {
    if (top >= bottom || bottom >= this.rows) {
      top = 0;
      bottom = this.rows - 1;
    }
    this.top = top;
    this.bottom = bottom;
    this.#place(0, 0);
  }

  #save() {
    const { x, y, style, charset, originMode } = this;
    this.saved = { x, y, style, charset, originMode, charsets: [...this.charsets] };
  }

  #restore() {
    const { x, y, ...rest } = this.saved ?? { x: 0, y: 0, style: PLAIN };
    Object.assign(this, rest);
    this.#moveTo(x, y);
  }

  #setStyle(given) {
    const style = { ...this.style };
    for (let at = 0; at < given.length; at++) {
      const code = given[at];
      if (code === 38 || code === 48) {
        const [colour, used] = extended(given.slice(at + 1));
        style[code === 38 ? "front" : "back"] = colour;
        at += used;
      } else change(style, code);
    }
    for (const name in style) if (style[name] === undefined || style[name] === false) delete style[name];
    this.style = Object.keys(style).length ? Object.freeze(style) : PLAIN;
  }

  #empty() {
    return Array.from({ length: this.rows }, () => new Row(this.columns));
  }
}

const ground = "ground", escape = "escape", control = "control", charset = "charset", string = "string", skip = "skip";

const SWITCHES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 8: "hidden", 9: "strike" };
const OFF = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 28: ["hidden"], 29: ["strike"] };

function change(style, code) {
  if (code === 0) for (const name in style) delete style[name];
  else if (SWITCHES[code]) style[SWITCHES[code]] = true;
  else if (OFF[code]) for (const name of OFF[code]) delete style[name];
  else if (code >= 30 && code <= 37) style.front = code - 30;
  else if (code >= 90 && code <= 97) style.front = code - 82;
  else if (code === 39) delete style.front;
  else if (code >= 40 && code <= 47) style.back = code - 40;
  else if (code >= 100 && code <= 107) style.back = code - 92;
  else if (code === 49) delete style.back;
}

/** An indexed colour or #rrggbb, and how many parameters it took. */
function extended([kind, ...rest]) {
  if (kind === 5) return [rest[0] === undefined ? undefined : Math.min(rest[0], 255), 2];
  if (kind !== 2) return [undefined, 1];
  const hex = rest.slice(0, 3).map((part) => Math.min(part, 255).toString(16).padStart(2, "0"));
  return [hex.length === 3 ? "#" + hex.join("") : undefined, 4];
}

/** Erased cells have the current background. */
function blank(style) {
  return style.back === undefined ? BLANK : { text: " ", style: Object.freeze({ back: style.back }) };
}
