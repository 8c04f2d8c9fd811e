import { Figure } from "@/widgets/figure/Figure";
import styles from "./Facts.module.css";
import type { Fact } from "./facts";

/** Names and values. */
export function Facts({ title, facts }: { title: string; facts: readonly Fact[] }) {
  return (
    <Figure title={title}>
      <dl className={styles.facts}>
        {facts.map(([name, value]) => (
          <div key={name} className={styles.fact}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </Figure>
  );
}
