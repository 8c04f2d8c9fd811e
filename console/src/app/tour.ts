// The tour: what it says, and whether this browser has shown it.

const NAME = "peltier.tour";

export interface Step {
  title: string;
  text: string;
  /** The page that the step shows; the first step stays where the visitor is. */
  path?: string;
}

export const STEPS: readonly Step[] = [
  {
    title: "Adapters",
    text: "One frozen model serves every adapter of this list. A name leads to its versions, aliases, examples and training.",
  },
  {
    title: "Upload",
    text: "Drop an artifact of peltier train here. It goes live only if this server reproduces its golden examples.",
    path: "/upload",
  },
  {
    title: "Live",
    text: "Requests, latency, batches and memory of this replica, as they change. Ctrl K finds any page or adapter.",
    path: "/live",
  },
  {
    title: "Playground",
    text: "Try an adapter on a text and see who answered. An example is filled in: press “Predict”.",
    path: "/playground",
  },
];

/** Whether this browser has never shown the tour. A browser that cannot remember it does not show it. */
export function isFirstVisit(): boolean {
  try {
    return localStorage.getItem(NAME) === null;
  } catch {
    return false;
  }
}

export function rememberVisit(): void {
  localStorage.setItem(NAME, "shown");
}
