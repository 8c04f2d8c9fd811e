import { useState } from "react";
import { Button } from "@/widgets/button/Button";

interface Props {
  text: string;
  /** What the button copies, for example “the digest”. */
  what: string;
  label?: string;
}

/** Puts a text on the clipboard and says so. */
export function CopyButton({ text, what, label = "Copy" }: Props) {
  const [state, setState] = useState<"idle" | "copied" | "refused">("idle");
  const copy = async () => {
    setState(await navigator.clipboard.writeText(text).then(asCopied, asRefused));
    setTimeout(() => setState("idle"), 1_500);
  };
  return (
    <Button kind="quiet" onClick={copy} aria-label={`${label} ${what}`} title={`${label} ${what}`}>
      <span aria-live="polite">{state === "copied" ? "Copied" : state === "refused" ? "Refused" : label}</span>
    </Button>
  );
}

const asCopied = () => "copied" as const;
const asRefused = () => "refused" as const;
