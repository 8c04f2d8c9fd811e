import { errorOfResult } from "@/api/predictions";
import { textsOf } from "@/rows/input";
import { Dialog } from "@/widgets/dialog/Dialog";
import panel from "@/widgets/panel/Panel.module.css";
import { InlineError } from "@/widgets/states/InlineError";
import { AnswerView } from "./answer/AnswerView";
import { WhoAnswered } from "./answer/WhoAnswered";
import type { AnsweredRow } from "./batch";
import styles from "./layout.module.css";

/** Everything about one row of a batch. */
export function RowDialog({ row, onClose }: { row: AnsweredRow; onClose: () => void }) {
  const { line, item, result, problem } = row;
  return (
    <Dialog title={`Line ${line}${item ? ` · ${item.task}` : ""}`} onClose={onClose}>
      <div className={styles.results}>
        {item && <p className={panel.input}>{textsOf(item.input).join("\n")}</p>}
        {problem && <InlineError error={new Error(`Line ${line} ${problem}.`)} />}
        {result && "error" in result && <InlineError error={errorOfResult(result)} />}
        {item && result && "predictions" in result && result.predictions[0] && (
          <>
            <AnswerView prediction={result.predictions[0]} input={item.input} />
            <WhoAnswered answered={result} />
          </>
        )}
      </div>
    </Dialog>
  );
}
