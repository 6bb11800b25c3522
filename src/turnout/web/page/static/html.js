// Preact with htm: `html` makes elements from a template. Text in a template is never parsed as HTML.

import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
export { Fragment, render } from "preact";
export { useCallback, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, useComputed, useSignal, useSignalEffect } from "@preact/signals";
