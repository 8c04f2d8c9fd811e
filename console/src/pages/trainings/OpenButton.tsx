import { useRef } from "react";
import { Button } from "@/widgets/button/Button";

/** Asks for report files. */
export function OpenButton({ onFiles }: { onFiles: (files: FileList) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        accept=".json,application/json"
        multiple
        hidden
        aria-label="Report files"
        onChange={(event) => {
          if (event.target.files) onFiles(event.target.files);
          event.target.value = "";
        }}
      />
      <Button kind="primary" onClick={() => input.current?.click()}>
        Open a report
      </Button>
    </>
  );
}
