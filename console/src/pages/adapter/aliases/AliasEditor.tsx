import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { deleteAlias, rollBackAlias, setAlias } from "@/api/adapters";
import type { Schema } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import { useNotice } from "@/widgets/notice/notices";
import { Time } from "@/widgets/time/Time";
import styles from "./aliases.module.css";
import { SplitBar } from "./SplitBar";
import { addVersion, areEqual, sharesOf, splitOf } from "./shares";

interface Props {
  name: string;
  alias: Schema<"Alias">;
  /** The numbers of the live versions. */
  known: readonly number[];
}

/** One alias: its split, which can be changed, rolled back and deleted. */
export function AliasEditor({ name, alias, known }: Props) {
  const before = sharesOf(alias.versions);
  const [shares, setShares] = useState(before);
  const cache = useQueryClient();
  const notice = useNotice();
  const change = useMutation({
    mutationFn: (work: () => Promise<unknown>) => work(),
    onSuccess: () => cache.invalidateQueries({ queryKey: ["adapters"] }),
    onError: (error) => notice({ text: error.message, tone: "bad" }),
  });
  const back = { label: "Undo", run: () => change.mutate(() => rollBackAlias(name, alias.alias)) };
  const apply = () =>
    change.mutate(async () => {
      await setAlias(name, alias.alias, splitOf(shares));
      notice({ text: `${alias.alias} follows the new split.`, action: back });
    });
  const remove = () =>
    change.mutate(async () => {
      await deleteAlias(name, alias.alias);
      notice({ text: `${alias.alias} is deleted.`, action: back });
    });
  const others = known.filter((version) => !shares.some((share) => share.version === version));
  const isChanged = !areEqual(before, shares);
  return (
    <div className={styles.alias}>
      <div className={styles.head}>
        <h3>{alias.alias}</h3>
        <span className={styles.set}>
          set <Time value={alias.created_at} isRelative /> by {alias.created_by || "nobody"}
        </span>
      </div>
      <SplitBar shares={shares} onChange={setShares} label={alias.alias} />
      <div className={styles.actions}>
        {others.length > 0 && (
          <select
            aria-label={`Add a version to ${alias.alias}`}
            value=""
            onChange={(event) => setShares(addVersion(shares, Number(event.target.value)))}
          >
            <option value="">Add a version…</option>
            {others.map((version) => (
              <option key={version} value={version}>
                v{version}
              </option>
            ))}
          </select>
        )}
        {isChanged && (
          <>
            <Button kind="primary" onClick={apply} disabled={change.isPending}>
              Apply
            </Button>
            <Button onClick={() => setShares(before)}>Reset</Button>
          </>
        )}
        <span className={styles.rest}>
          <Button
            kind="quiet"
            onClick={() => change.mutate(() => rollBackAlias(name, alias.alias))}
            disabled={change.isPending}
          >
            Roll back
          </Button>
          <Button kind="quiet" onClick={remove} aria-label={`Delete alias ${alias.alias}`}>
            Delete
          </Button>
        </span>
      </div>
    </div>
  );
}
