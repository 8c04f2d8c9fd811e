import { createContext, useContext } from "react";

interface Texts {
  /** What is written in the fields of an input. */
  texts: readonly string[];
  setTexts: (texts: readonly string[]) => void;
}

/** The modes of the page share their texts, so that one text goes to one task and then to several. */
export const TextsContext = createContext<Texts>({ texts: [], setTexts: () => undefined });

export function useTexts(): Texts {
  return useContext(TextsContext);
}
