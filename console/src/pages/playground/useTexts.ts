import { createContext, useContext } from "react";

interface Texts {
  /** What the visitor wrote in the fields of an input; null before. */
  typed: readonly string[] | null;
  setTyped: (texts: readonly string[]) => void;
}

/** The modes of the page share their texts, so that one text goes to one task and then to several. */
export const TextsContext = createContext<Texts>({ typed: null, setTyped: () => undefined });

export function useTexts(): Texts {
  return useContext(TextsContext);
}
