import { useQueryClient } from "@tanstack/react-query";
import { deleteAdapter, deleteVersion, undeleteVersion } from "@/api/adapters";
import { asApiError } from "@/api/server";
import { navigate } from "@/app/hash";
import { useNotice } from "@/widgets/notice/notices";

interface Deletion {
  removeAll: (versions: readonly number[]) => void;
  removeVersion: (version: number) => void;
}

/** Deletes an adapter or a version of it, and offers to bring it back. */
export function useDeletion(name: string): Deletion {
  const notice = useNotice();
  const cache = useQueryClient();
  const refresh = () => cache.invalidateQueries({ queryKey: ["adapters"] });
  const failed = (failure: unknown) => notice({ text: asApiError(failure).message, tone: "bad" });

  const restore = async (versions: readonly number[], said: string) => {
    // Oldest first, so that a quota refuses the newest ones last.
    for (const version of [...versions].sort((one, other) => one - other)) await undeleteVersion(name, version);
    // A page that is not shown has aliases in the cache that did not come back.
    cache.removeQueries({ queryKey: ["adapters"], type: "inactive" });
    await refresh();
    notice({ text: said });
    navigate(`/adapters/${name}`);
  };
  const undo = (versions: readonly number[], said: string) => ({
    label: "Undo",
    run: () => void restore(versions, said).catch(failed),
  });

  return {
    removeAll: (versions) =>
      void deleteAdapter(name)
        .then(() => {
          navigate("/adapters");
          notice({ text: `${name} is deleted.`, action: undo(versions, `${name} is back, without its aliases.`) });
          // This page may still be shown, and would ask for what is gone. The list asks when it is shown.
          return cache.invalidateQueries({ queryKey: ["adapters"], refetchType: "none" });
        })
        .catch(failed),
    removeVersion: (version) =>
      void deleteVersion(name, version)
        .then(() => {
          const one = `Version ${version} of ${name}`;
          notice({ text: `${one} is deleted.`, action: undo([version], `${one} is back.`) });
          return refresh();
        })
        .catch(failed),
  };
}
