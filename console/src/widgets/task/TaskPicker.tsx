import { type KeyboardEvent, useId, useState } from "react";
import { Field } from "@/widgets/field/Field";
import styles from "./TaskPicker.module.css";
import { useTaskOptions } from "./useTaskOptions";

interface Props {
  label: string;
  /** A task reference; empty if none is chosen. */
  value: string;
  onChoose: (reference: string) => void;
  hint?: string;
  error?: string;
  /** Also takes a group, `prefix*`. */
  allowsGroups?: boolean;
  /** Empties itself after each choice, to choose several. */
  isCleared?: boolean;
}

/** Finds a task by a few letters of its name. `name@` lists its versions; any reference can be typed. */
export function TaskPicker(props: Props) {
  const { label, value, onChoose, hint, error, allowsGroups = false, isCleared = false } = props;
  const [typed, setTyped] = useState<string | null>(null);
  const [active, setActive] = useState(-1);
  const listId = useId();
  const options = useTaskOptions(typed ?? "", allowsGroups);
  const isOpen = typed !== null && options.length > 0;
  const choose = (reference: string) => {
    setTyped(isCleared && document.activeElement?.getAttribute("aria-controls") === listId ? "" : null);
    setActive(-1);
    if (reference.trim() && (isCleared || reference !== value)) onChoose(reference.trim());
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && isOpen) setActive((active + step + options.length) % options.length);
    else if (step) setTyped(typed ?? value);
    else if (event.key === "Enter" && typed !== null) choose(options[active]?.reference ?? typed);
    else if (event.key === "Escape" && typed !== null) setTyped(null);
    else return;
    event.preventDefault();
  };
  return (
    <div className={styles.picker}>
      <Field label={label} hint={hint} error={error}>
        <input
          role="combobox"
          aria-expanded={isOpen}
          aria-controls={listId}
          aria-autocomplete="list"
          aria-activedescendant={isOpen && active >= 0 ? `${listId}-${active}` : undefined}
          placeholder={allowsGroups ? "name, name@2 or group*" : "name, name@2 or name@alias"}
          spellCheck={false}
          autoComplete="off"
          value={typed ?? value}
          onFocus={() => setTyped(isCleared ? "" : value)}
          onChange={(event) => {
            setTyped(event.target.value);
            setActive(-1);
          }}
          onBlur={() => choose(typed ?? "")}
          onKeyDown={onKeyDown}
        />
      </Field>
      <div className={styles.list} role="listbox" id={listId} aria-label="Tasks" hidden={!isOpen}>
        {options.map(({ reference, about }, index) => (
          <div
            key={reference}
            id={`${listId}-${index}`}
            className={styles.option}
            role="option"
            tabIndex={-1}
            aria-selected={index === active}
            onPointerDown={(event) => {
              event.preventDefault();
              choose(reference);
            }}
          >
            <span>{reference}</span>
            <span className={styles.about}>{about}</span>
          </div>
        ))}
      </div>
    </div>
  );
}
