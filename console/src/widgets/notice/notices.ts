import { createContext, useContext } from "react";

export interface Notice {
  id: number;
  text: string;
  tone?: "good" | "bad";
  /** One step that the notice offers, for example “Undo”. */
  action?: { label: string; run: () => void };
}

type Show = (notice: Omit<Notice, "id">) => void;

export const NoticeContext = createContext<Show>(() => undefined);

/** Shows a short notice that goes away by itself: `show({ text: "Deleted.", action: { label: "Undo", run } })`. */
export function useNotice(): Show {
  return useContext(NoticeContext);
}
