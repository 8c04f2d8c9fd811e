import { useEffect, useRef, useState } from "react";

export type Run<Value> =
  | { status: "idle" }
  | { status: "running"; value?: Value }
  | { status: "done"; value: Value; elapsedMs: number }
  | { status: "failed"; error: Error; value?: Value };

interface Runner<Value> {
  state: Run<Value>;
  /** Begins `work` and cancels what runs. `show` replaces the value meanwhile. */
  run: (work: (signal: AbortSignal, show: (value: Value) => void) => Promise<Value>) => void;
  cancel: () => void;
}

/** One request at a time whose progress is shown. It is cancelled with the component. */
export function useRun<Value>(): Runner<Value> {
  const [state, setState] = useState<Run<Value>>({ status: "idle" });
  const current = useRef<AbortController>(null);
  const cancel = () => {
    current.current?.abort();
    current.current = null;
    setState((shown) => (shown.status === "running" ? { status: "idle" } : shown));
  };
  useEffect(() => () => current.current?.abort(), []);
  const run: Runner<Value>["run"] = (work) => {
    current.current?.abort();
    const controller = new AbortController();
    current.current = controller;
    const isCurrent = () => current.current === controller;
    let latest: Value | undefined;
    const begun = performance.now();
    const show = (value: Value) => {
      latest = value;
      if (isCurrent()) setState({ status: "running", value });
    };
    setState({ status: "running" });
    work(controller.signal, show).then(
      (value) => isCurrent() && setState({ status: "done", value, elapsedMs: performance.now() - begun }),
      (error: Error) => isCurrent() && setState({ status: "failed", error, value: latest }),
    );
  };
  return { state, run, cancel };
}
