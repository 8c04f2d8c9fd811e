import { type ChangeEvent, type ComponentProps, useRef } from "react";
import { Button } from "@/widgets/button/Button";

interface Props {
  /** What the button says. */
  label: string;
  /** What is chosen, for screen readers. */
  what: string;
  /** As the attribute `accept` of a file input. */
  accept: string;
  onFiles: (files: readonly File[]) => void;
  kind?: ComponentProps<typeof Button>["kind"];
  isSingle?: boolean;
}

/** Has the visitor choose files. */
export function FilesButton({ label, what, accept, onFiles, kind, isSingle = false }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const choose = (event: ChangeEvent<HTMLInputElement>) => {
    const files = [...(event.target.files ?? [])];
    // The same file can be chosen again.
    event.target.value = "";
    if (files.length > 0) onFiles(files);
  };
  return (
    <>
      <Button kind={kind} onClick={() => input.current?.click()}>
        {label}
      </Button>
      <input ref={input} type="file" accept={accept} multiple={!isSingle} hidden aria-label={what} onChange={choose} />
    </>
  );
}
