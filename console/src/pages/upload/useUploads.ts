import { useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import type { ApiError } from "@/api/error";
import { asApiError, type Schema } from "@/api/server";
import { type Artifact, type UploadTarget, uploadArtifact } from "@/api/upload";
import { type Header, readHeader } from "./header";

export type Item = {
  id: number;
  artifact: Artifact;
  target: UploadTarget;
} & (
  | { state: "waiting" }
  | { state: "sending"; share: number }
  | { state: "published"; version: Schema<"UploadedVersion"> }
  | { state: "failed"; error: ApiError; header: Header | null }
);

interface Uploads {
  /** The newest first. */
  items: readonly Item[];
  add: (artifacts: readonly Artifact[], target: UploadTarget) => void;
  cancel: (id: number) => void;
  again: (item: Item) => void;
}

type Progress = Partial<Pick<Item, "state">> & Record<string, unknown>;

/** Uploads files one after another. */
export function useUploads(): Uploads {
  const [items, setItems] = useState<readonly Item[]>([]);
  const queue = useRef<Promise<void>>(Promise.resolve());
  const aborts = useRef(new Map<number, AbortController>());
  const numbers = useRef(0);
  const cache = useQueryClient();

  const change = (id: number, progress: Progress) =>
    setItems((all) => all.map((item) => (item.id === id ? ({ ...item, ...progress } as Item) : item)));

  const send = async (id: number, artifact: Artifact, target: UploadTarget, abort: AbortController) => {
    try {
      abort.signal.throwIfAborted();
      change(id, { state: "sending", share: 0 });
      const onSent = (share: number) => change(id, { state: "sending", share });
      change(id, { state: "published", version: await uploadArtifact(artifact, target, onSent, abort.signal) });
      await cache.invalidateQueries({ queryKey: ["adapters"] });
      await cache.invalidateQueries({ queryKey: ["info"] });
    } catch (failure) {
      change(id, { state: "failed", error: asApiError(failure), header: await readHeader(artifact.file) });
    }
  };

  const add = (artifacts: readonly Artifact[], target: UploadTarget) => {
    for (const artifact of artifacts) {
      numbers.current += 1;
      const id = numbers.current;
      const abort = new AbortController();
      aborts.current.set(id, abort);
      setItems((all) => [{ id, artifact, target, state: "waiting" }, ...all]);
      queue.current = queue.current.then(() => send(id, artifact, target, abort));
    }
  };

  return {
    items,
    add,
    cancel: (id) => aborts.current.get(id)?.abort(),
    again: ({ id, artifact, target }) => {
      setItems((all) => all.filter((item) => item.id !== id));
      add([artifact], target);
    },
  };
}
