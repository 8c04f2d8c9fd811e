import { useQuery } from "@tanstack/react-query";
import { serverInfo } from "@/api/info";
import { useKey } from "@/api/key";
import { Button } from "@/widgets/button/Button";
import { Navigation } from "./Navigation";
import { ThemeButton } from "./ThemeButton";
import styles from "./TopBar.module.css";

interface Props {
  onKey: () => void;
  onPalette: () => void;
}

export function TopBar({ onKey, onPalette }: Props) {
  const { key } = useKey();
  // A server with keys refuses this without one.
  const { isSuccess: needsNoKey } = useQuery({ ...serverInfo(), enabled: key === "" });
  return (
    <header className="top-bar">
      <a className="top-bar-name" href="#/">
        Peltier
      </a>
      <Navigation />
      <div className={styles.tools}>
        <Button kind="quiet" onClick={onPalette} aria-keyshortcuts="Control+K" title="Search adapters and commands">
          Search <kbd className={styles.shortcut}>Ctrl K</kbd>
        </Button>
        <Button kind="quiet" onClick={onKey}>
          {key ? "Key set" : needsNoKey ? "No key needed" : "Enter key"}
        </Button>
        <ThemeButton />
      </div>
    </header>
  );
}
