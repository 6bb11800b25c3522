// A job that is loaded again when it changes.

import { get, jobPath, onChange, useLoad } from "./api.js";
import { useEffect, useRef } from "./html.js";
import { navigate } from "./router.js";

const SETTLE_MS = 150; // people cannot read faster

/** As `useLoad`. `id`: also a name. Goes to the list if the job is deleted. */
export function useLiveJob(id) {
  const loaded = useLoad((abort) => get(jobPath(id), {}, abort), [id]);
  const current = useRef();
  current.current = loaded;
  useEffect(() => {
    let waiting = 0;
    const again = () => {
      waiting = 0;
      // What is being loaded may have been read before the change.
      if (current.current.loading) later();
      else current.current.reload();
    };
    const later = () => {
      waiting ||= setTimeout(again, SETTLE_MS);
    };
    const end = onChange((kind, changed) => {
      const { data, loading } = current.current;
      const known = data?.id === changed.id;
      if (kind === "deleted" && known) navigate("/jobs", { replace: true });
      else if (kind === "reset" || loading || known) later();
    });
    return () => {
      clearTimeout(waiting);
      end();
    };
  }, [id]);
  return loaded;
}
