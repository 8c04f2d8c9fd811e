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

  const restore = async (versions: readonly number[]) => {
    // Oldest first, so that a quota refuses the newest ones last.
    for (const version of [...versions].sort((one, other) => one - other)) await undeleteVersion(name, version);
    await refresh();
    notice({ text: `${name} is back${versions.length > 1 ? " with all its versions; its aliases are not" : ""}.` });
    navigate(`/adapters/${name}`);
  };
  const undo = (versions: readonly number[]) => ({
    label: "Undo",
    run: () => void restore(versions).catch(failed),
  });

  return {
    removeAll: (versions) =>
      void deleteAdapter(name)
        .then(() => {
          navigate("/adapters");
          notice({ text: `${name} is deleted.`, action: undo(versions) });
          // This page may still be shown, and would ask for what is gone. The list asks when it is shown.
          return cache.invalidateQueries({ queryKey: ["adapters"], refetchType: "none" });
        })
        .catch(failed),
    removeVersion: (version) =>
      void deleteVersion(name, version)
        .then(() => {
          notice({ text: `Version ${version} of ${name} is deleted.`, action: undo([version]) });
          return refresh();
        })
        .catch(failed),
  };
}
