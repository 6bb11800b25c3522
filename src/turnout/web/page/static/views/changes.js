// Reads a view's data again when jobs change, but not more often than a person can follow.

import { onChange } from "../api.js";
import { useEffect, useRef } from "../html.js";

/**
 * Calls `reload` soon after a change for which `concerns(job)` holds, and at most once in `pause` milliseconds. A hidden
 * tab waits until it is looked at.
 */
export function useReload(reload, { concerns = () => true, pause = 1000 } = {}) {
  const current = useRef();
  current.current = { reload, concerns, pause };
  useEffect(() => {
    let waiting = 0;
    let last = 0;
    let missed = false;
    const run = () => {
      waiting = 0;
      if (document.hidden) {
        missed = true;
        return;
      }
      last = Date.now();
      current.current.reload();
    };
    const soon = () => {
      waiting ||= setTimeout(run, Math.max(150, last + current.current.pause - Date.now()));
    };
    const shown = () => {
      if (document.hidden || !missed) return;
      missed = false;
      soon();
    };
    const stop = onChange((kind, job) => {
      if (kind === "reset" || kind === "deleted" || (kind === "change" && current.current.concerns(job))) soon();
    });
    document.addEventListener("visibilitychange", shown);
    return () => {
      stop();
      clearTimeout(waiting);
      document.removeEventListener("visibilitychange", shown);
    };
  }, []);
}
