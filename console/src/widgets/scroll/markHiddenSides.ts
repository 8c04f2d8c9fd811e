/** Keeps `data-more` of an element that scrolls sideways: `start`, `end` or both, where more is out of view. */
export function markHiddenSides(element: HTMLElement): () => void {
  const mark = () => {
    const before = Math.abs(element.scrollLeft);
    const after = element.scrollWidth - element.clientWidth - before;
    element.dataset.more = [before > 1 && "start", after > 1 && "end"].filter(Boolean).join(" ");
  };
  const observer = new ResizeObserver(mark);
  observer.observe(element);
  for (const child of element.children) observer.observe(child);
  element.addEventListener("scroll", mark, { passive: true });
  return () => {
    observer.disconnect();
    element.removeEventListener("scroll", mark);
  };
}
