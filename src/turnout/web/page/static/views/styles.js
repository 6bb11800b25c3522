// Styles that only one view needs are loaded with its module, before it is drawn.

/** Resolves when the style sheet beside this module applies. Without it, a view still works. */
export function styles(name) {
  return new Promise((resolve) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL(name, import.meta.url);
    link.onload = link.onerror = resolve;
    document.head.append(link);
  });
}
