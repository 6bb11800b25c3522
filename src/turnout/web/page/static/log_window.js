// The part of a log that is drawn, by time. Lines that are loaded at one end push out lines at the other.

import { events, get, jobPath } from "./api.js";
import { count } from "./format.js";
import { address } from "./router.js";

const PAGE = 400;
const MOST = 2400; // lines that are drawn
const ENOUGH = 200; // matches of a search that are loaded at once

export class LogWindow {
  /** `part`: {replica, attempt}. `wanted`: {find, errors}: only lines that match. `draw` is called after each change. */
  constructor(job, part, wanted, draw) {
    this.job = job;
    this.part = part;
    this.wanted = wanted;
    this.draw = draw;
    this.rows = [];
    this.atStart = this.atEnd = this.stuck = false;
    this.busy = false; // lines are being loaded
    this.status = "";
    this.extent = { size: 0, position: 0 };
    this.closed = false;
    this.loading = new AbortController();
    this.target = null; // what to scroll to after the next drawing: "end", "start" or the id of a line
    this.anchor = null;
    this.nodes = new WeakMap();
    this.cursor = "";
    this.settling = 0;
  }

  close() {
    this.closed = true;
    this.loading.abort();
    clearTimeout(this.settling);
  }

  // Places. The last one that is asked for counts.

  end() {
    return this.#load(async () => {
      const page = await this.#page({ back: true });
      this.#set(page.lines.reverse(), "end", { atStart: page.over, atEnd: true });
      this.stuck = true;
      await this.#measure();
    });
  }

  start() {
    return this.#load(async () => {
      const page = await this.#page({});
      this.#set(page.lines, "start", { atStart: true, atEnd: page.over });
      await this.#measure();
    });
  }

  /** The lines around one of them. */
  around(id) {
    return this.#load(async () => {
      const at = id.split(".")[0];
      const [earlier, later] = await Promise.all([this.#page({ back: true, until: at, limit: PAGE / 4 }), this.#page({ since: at })]);
      this.#set(joined(earlier.lines.reverse(), later.lines), id, { atStart: earlier.over, atEnd: later.over });
      await this.#measure();
    });
  }

  /** The lines from that byte of the log on. */
  at(position) {
    return this.#load(async () => {
      const { at } = await this.#get("/logs/extent", { position });
      const page = await this.#page({ since: at });
      this.#set(page.lines, "start", { atStart: position === 0, atEnd: page.over });
      await this.#measure();
    });
  }

  /** The id of the first line that looks like an error; "" if there is none. */
  firstError() {
    return this.#load(async () => {
      let cursor = "";
      for (let over = false; !over; ) {
        this.#say("Looking for an error…");
        const page = await this.#get("/logs/lines", { errors: true, limit: 1, cursor });
        if (page.lines.length) {
          this.#say("");
          return page.lines[0].id;
        }
        ({ next: cursor, over } = page);
      }
      this.#say("");
      return "";
    });
  }

  /** The first matches of the search. `after` loads more. */
  search() {
    return this.#load(async () => {
      this.cursor = "";
      this.#set([], "start", { atStart: true, atEnd: false });
      await this.#search();
    });
  }

  // More lines at the ends.

  before() {
    if (this.atStart || !this.rows.length || this.#searches) return undefined;
    return this.#more(async () => {
      const page = await this.#page({ back: true, until: time(this.rows[0]) });
      const rows = joined(page.lines.reverse(), this.rows);
      this.atStart = page.over || rows.length === this.rows.length;
      this.atEnd &&= rows.length <= MOST;
      this.rows = rows.slice(0, MOST);
    });
  }

  after() {
    if (this.atEnd || (!this.rows.length && !this.#searches)) return undefined;
    if (this.#searches) return this.#more(() => this.#search());
    return this.#more(async () => {
      const page = await this.#page({ since: time(this.rows.at(-1)) });
      this.#append(page.lines);
      this.atEnd = page.over;
    });
  }

  /** Appends lines as they are printed. Returns what ends it. */
  follow() {
    const ending = new AbortController();
    const run = async () => {
      let last = "";
      while (!ending.signal.aborted && !this.closed) {
        const since = this.rows.length ? time(this.rows.at(-1)) : "";
        const url = address(`/turnout/v1${jobPath(this.job, "/logs")}`, { follow: true, since, ...this.part });
        try {
          for await (const event of events(url, last ? { "Last-Event-ID": last } : {}, ending.signal)) {
            if (event.kind === "end") return;
            if (event.id) last = event.id;
            // Elsewhere in the log, these are not the next lines.
            if (event.kind !== "message" || !this.atEnd) continue;
            const printed = JSON.parse(event.data);
            // Who reads further up keeps their lines: what comes now is loaded when they scroll down.
            if (!this.stuck && this.rows.length + printed.length > MOST) this.atEnd = false;
            else this.#append(printed);
            this.draw();
          }
        } catch (error) {
          if (ending.signal.aborted) return;
        }
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
    };
    run();
    return () => ending.abort();
  }

  // Drawing.

  /** A line's element is made once for each way in which it is drawn. */
  drawn(line, way, make) {
    const known = this.nodes.get(line);
    if (known?.way === way) return known.node;
    const node = make();
    this.nodes.set(line, { way, node });
    return node;
  }

  /** After each drawing: scrolls to what was asked for, or keeps the lines in view where they were. */
  place(box) {
    if (!box) return;
    if (this.target) {
      const line = this.target === "end" || this.target === "start" ? null : document.getElementById(this.target);
      if (line) line.scrollIntoView({ block: "center" });
      else box.scrollTop = this.target === "end" ? box.scrollHeight : 0;
      if (this.rows.length) this.target = null;
    } else if (this.stuck) box.scrollTop = box.scrollHeight;
    else if (this.anchor) {
      const moved = document.getElementById(this.anchor.id)?.getBoundingClientRect().top;
      if (moved !== undefined) box.scrollTop += moved - this.anchor.top;
    }
    this.#remember(box);
  }

  /** While somebody scrolls; says the place in the log when they rest. */
  settle(box, milliseconds) {
    this.#remember(box);
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.#measure(), milliseconds);
  }

  #remember(box) {
    const top = box.getBoundingClientRect().top;
    const lines = box.querySelector("ol").children;
    let [low, high] = [0, lines.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lines[middle].getBoundingClientRect().bottom <= top) low = middle + 1;
      else high = middle;
    }
    const line = lines[low];
    this.anchor = line ? { id: line.id, top: line.getBoundingClientRect().top } : null;
  }

  get #searches() {
    return Boolean(this.wanted.find || this.wanted.errors);
  }

  #get(path, query) {
    return get(jobPath(this.job, path), { ...this.part, ...query }, this.loading.signal);
  }

  #page(query) {
    return this.#get("/logs/lines", { limit: PAGE, ...query });
  }

  async #search() {
    const { find, errors } = this.wanted;
    const had = this.rows.length;
    while (!this.atEnd && this.rows.length - had < ENOUGH) {
      this.#say(`${count(this.rows.length, "line")} found, searching…`);
      const page = await this.#page({ search: find, errors: errors || "", cursor: this.cursor, limit: ENOUGH });
      this.cursor = page.next;
      this.atEnd = page.over;
      this.rows = [...this.rows, ...page.lines];
    }
    const found = this.atEnd ? count(this.rows.length, "line") : `${this.rows.length} or more lines`;
    this.#say(`${found} found. Click a time to see the line among its neighbours.`);
  }

  async #measure() {
    if (this.closed || this.#searches) return;
    const at = this.anchor?.id.split(".")[0] ?? (this.rows.length ? time(this.rows[0]) : "");
    try {
      const found = await this.#get("/logs/extent", { at });
      this.extent = this.stuck ? { ...found, position: found.size } : found;
      this.draw();
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  }

  /** Loads lines in place of what is being loaded. Undefined if something else is loaded meanwhile. */
  async #load(work) {
    if (this.closed) return undefined;
    this.loading.abort();
    const loading = (this.loading = new AbortController());
    this.busy = true;
    try {
      return await work();
    } catch (error) {
      if (error.name === "AbortError") return undefined;
      this.status = error.message;
      throw error;
    } finally {
      if (this.loading === loading) this.busy = false;
      this.draw();
    }
  }

  /** Loads more lines, unless lines are being loaded. */
  async #more(work) {
    if (this.busy) return;
    await this.#load(work).catch(() => {}); // the status says it
  }

  #append(lines) {
    const rows = joined(this.rows, lines);
    if (rows.length > MOST) this.atStart = false;
    this.rows = rows.slice(-MOST);
  }

  #set(rows, target, ends) {
    this.status = "";
    this.rows = rows;
    this.target = target;
    this.stuck = false;
    Object.assign(this, ends);
    this.draw();
  }

  #say(status) {
    this.status = status;
    this.draw();
  }
}

/** The time of a line, in nanoseconds; as text, because a number of JavaScript is too short. */
const time = (line) => line.id.split(".")[0];

/** Two neighbouring pieces, without the lines that are in both. */
function joined(first, second) {
  const known = new Set(first.slice(-1000).map((line) => line.id));
  return [...first, ...second.filter((line) => !known.has(line.id))];
}
