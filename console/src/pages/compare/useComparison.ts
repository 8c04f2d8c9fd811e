import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useSearchParams } from "wouter";
import { versionSearch } from "@/api/adapters";
import { MAX_COMPARED_ROWS } from "@/api/comparisons";
import { taskOf } from "@/api/tasks";
import { readTable } from "@/rows/table";
import { counted } from "@/widgets/format/numbers";
import { kindOfBoth } from "./answers";
import { type Columns, guessColumns } from "./columns";

const NUM_TEXTS = { single: 1, pair: 2, triple: 3 } as const;
const TOO_MANY_ROWS = `At most ${counted(MAX_COMPARED_ROWS, "row")} are compared here; peltier compare takes any number.`;

/** The form of the page: two versions, the table, and which of its columns are read. */
export function useComparison() {
  const [search, setSearch] = useSearchParams();
  const references = useReferences(search);
  const first = useQuery(taskOf(references.first));
  const second = useQuery(taskOf(references.second));
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState<Partial<Columns>>({});
  const table = useMemo(() => readTable(text), [text]);
  const tasks = first.data && second.data ? ([first.data, second.data] as const) : null;
  const columns = { ...guessColumns(table.columns, NUM_TEXTS[first.data?.inputs ?? "single"]), ...chosen };
  return {
    references,
    errors: {
      first: first.error?.message ?? unknownTask(first.data),
      second: second.error?.message ?? unknownTask(second.data),
    },
    problem: tasks && (problemOf(tasks) || (table.rows.length > MAX_COMPARED_ROWS ? TOO_MANY_ROWS : "")),
    tasks,
    table,
    columns,
    text,
    setText: (next: string) => {
      setText(next);
      setChosen({});
    },
    setColumns: setChosen,
    choose: (side: "first" | "second", reference: string) => {
      const next = { ...references, [side]: reference };
      setSearch({ a: next.first, b: next.second }, { replace: true });
    },
  };
}

/** Those of the address, `a` and `b`; with `adapter` alone its two newest versions. */
function useReferences(search: URLSearchParams): { first: string; second: string } {
  const adapter = search.get("adapter") ?? "";
  const newest = useQuery({ ...versionSearch(adapter, 2), enabled: adapter !== "" });
  const [latest, before] = newest.data?.versions ?? [];
  const named = (version: number | undefined) => (version === undefined ? "" : `${adapter}@${version}`);
  return {
    first: search.get("a") ?? named(before?.version),
    second: search.get("b") ?? named(latest?.version),
  };
}

function unknownTask(task: unknown): string | undefined {
  return task === null ? "Only your own adapters can be compared here." : undefined;
}

function problemOf([first, second]: readonly [Parameters<typeof kindOfBoth>[0], Parameters<typeof kindOfBoth>[1]]) {
  try {
    kindOfBoth(first, second);
    return first.inputs === second.inputs ? "" : "The two versions have inputs of different forms.";
  } catch (error) {
    return (error as Error).message;
  }
}
