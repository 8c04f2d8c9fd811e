import { Link } from "wouter";

/** A published version, such as `sst2@3`, which leads to its page. */
export function AdapterLink({ adapter }: { adapter: string }) {
  const [name, version] = adapter.split("@", 2);
  return <Link href={version ? `/adapters/${name}?version=${version}` : `/adapters/${name}`}>{adapter}</Link>;
}
