import { useQuery } from "@tanstack/react-query";
import { adapterSearch, versionSearch } from "@/api/adapters";
import { useDebounced } from "./useDebounced";

export interface TaskOption {
  /** A task reference or a group. */
  reference: string;
  about: string;
}

const MAX_SHOWN = 12;
const PAUSE_MS = 150;

/** What `typed` may become: adapters that contain it, or the versions of `name@`. The server searches. */
export function useTaskOptions(typed: string, allowsGroups: boolean): TaskOption[] {
  const asked = useDebounced(typed.trim().toLowerCase(), PAUSE_MS);
  const [name = "", selector] = asked.split("@", 2);
  const wantsVersions = selector !== undefined && name !== "";
  const isGroup = allowsGroups && asked.endsWith("*");
  const search = isGroup ? asked.slice(0, -1) : asked;
  const adapters = useQuery({ ...adapterSearch(search, MAX_SHOWN), enabled: !wantsVersions && !asked.includes(":") });
  const versions = useQuery({ ...versionSearch(name, MAX_SHOWN), enabled: wantsVersions });
  if (wantsVersions) {
    return (versions.data?.versions ?? []).map(({ version, preset }) => ({
      reference: `${name}@${version}`,
      about: preset,
    }));
  }
  const found = (adapters.data?.adapters ?? []).map(({ name: own, latest }) => ({
    reference: own,
    about: `${latest.task.type} · ${latest.preset}`,
  }));
  if (!isGroup) return found;
  const members = found.filter(({ reference }) => reference.startsWith(search));
  return [{ reference: asked, about: `every adapter that begins with “${search}”` }, ...members];
}
