import type { ComponentProps } from "react";
import styles from "./Button.module.css";

interface Props extends ComponentProps<"button"> {
  kind?: "plain" | "primary" | "quiet" | "danger";
}

export function Button({ kind = "plain", type = "button", className = "", ...rest }: Props) {
  return <button {...rest} type={type} className={`${styles.button} ${styles[kind]} ${className}`} />;
}
