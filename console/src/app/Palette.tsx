import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useDeferredValue, useId, useState } from "react";
import { adapterSearch } from "@/api/adapters";
import { Dialog } from "@/widgets/dialog/Dialog";
import { type Command, useRegisteredCommands } from "./commands";
import { navigate } from "./hash";
import styles from "./Palette.module.css";

const MAX_SHOWN = 12;

/** Finds a command or an adapter by a few letters of its name. */
export function Palette({ onClose }: { onClose: () => void }) {
  const [typed, setTyped] = useState("");
  const [chosen, setChosen] = useState(0);
  const listId = useId();
  const found = useFound(typed.trim().toLowerCase());
  const active = Math.min(chosen, found.length - 1);
  const run = (command: Command | undefined) => {
    if (!command) return;
    onClose();
    command.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setChosen((active + 1) % found.length);
    else if (event.key === "ArrowUp") setChosen((active - 1 + found.length) % found.length);
    else if (event.key === "Enter") run(found[active]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Search" hidesTitle onClose={onClose}>
      <input
        className={styles.input}
        role="combobox"
        aria-label="Search adapters and commands"
        aria-expanded={found.length > 0}
        aria-controls={listId}
        aria-autocomplete="list"
        aria-activedescendant={found[active] ? `${listId}-${active}` : undefined}
        placeholder="Search adapters and commands"
        spellCheck={false}
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
          setChosen(0);
        }}
        onKeyDown={onKeyDown}
      />
      <div className={styles.list} role="listbox" id={listId} aria-label="Found">
        {found.map((command, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the input has the focus and handles the keys.
          <div
            key={command.id}
            id={`${listId}-${index}`}
            className={styles.option}
            role="option"
            tabIndex={-1}
            aria-selected={index === active}
            onClick={() => run(command)}
            onPointerMove={() => setChosen(index)}
          >
            <span>{command.title}</span>
            <span className={styles.group}>{command.group}</span>
          </div>
        ))}
      </div>
      {found.length === 0 && <p className={styles.nothing}>Nothing has this in its name.</p>}
    </Dialog>
  );
}

function useFound(typed: string): Command[] {
  const commands = useRegisteredCommands().filter((command) => matches(command, typed));
  const asked = useDeferredValue(typed);
  const { data } = useQuery({ ...adapterSearch(asked, MAX_SHOWN), enabled: asked !== "" });
  const adapters = typed === "" ? [] : (data?.adapters ?? []);
  const jumps = adapters
    .filter(({ name }) => name.includes(typed))
    .map(({ name }) => ({
      id: `adapter ${name}`,
      title: name,
      group: "Adapter",
      run: () => navigate(`/adapters/${name}`),
    }));
  return [...commands, ...jumps].slice(0, MAX_SHOWN);
}

function matches({ title, group }: Command, typed: string): boolean {
  const text = `${group} ${title}`.toLowerCase();
  return typed.split(/\s+/).every((word) => text.includes(word));
}
