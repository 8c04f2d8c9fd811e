import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { asApiError } from "@/api/server";
import {
  cancelTraining,
  deleteTraining,
  hasEnded,
  pauseTraining,
  resumeTraining,
  type Training,
  trainingQuery,
} from "@/api/trainings";
import { navigate } from "@/app/hash";
import { Button } from "@/widgets/button/Button";
import { Dialog } from "@/widgets/dialog/Dialog";
import { PageHeading } from "@/widgets/heading/PageHeading";
import { useNotice } from "@/widgets/notice/notices";
import styles from "./Training.module.css";

type Step = "cancel" | "delete";

/** The task of a training, what it trains, and what can be done with it. */
export function TrainingHeading({ training }: { training: Training }) {
  const { id, task, status, wish } = training;
  const [asked, setAsked] = useState<Step | null>(null);
  const { change, remove, isPending } = useSteps(id, task);
  const canPause = !wish && (status === "queued" || status === "running");
  const canResume = wish === "pause" || status === "paused" || status === "failed";
  const canCancel = wish !== "cancel" && !hasEnded(training) && status !== "publishing";
  const confirm = () => {
    if (asked === "cancel") change(cancelTraining);
    else remove();
    setAsked(null);
  };
  return (
    <PageHeading title={task} about={<About training={training} />}>
      {canPause && (
        <Button disabled={isPending} onClick={() => change(pauseTraining)}>
          Pause
        </Button>
      )}
      {canResume && (
        <Button disabled={isPending} onClick={() => change(resumeTraining)}>
          Resume
        </Button>
      )}
      {canCancel && (
        <Button kind="danger" disabled={isPending} onClick={() => setAsked("cancel")}>
          Cancel
        </Button>
      )}
      {hasEnded(training) && (
        <Button kind="danger" disabled={isPending} onClick={() => setAsked("delete")}>
          Delete
        </Button>
      )}
      {asked && <Confirmation step={asked} task={task} onKeep={() => setAsked(null)} onConfirm={confirm} />}
    </PageHeading>
  );
}

/** What the buttons do. A refusal is a notice. */
function useSteps(id: string, task: string) {
  const notice = useNotice();
  const client = useQueryClient();
  const onError = (error: Error) => notice({ text: asApiError(error).message, tone: "bad" });
  const change = useMutation({
    mutationFn: (step: (id: string) => Promise<Training>) => step(id),
    onSuccess: (training) => {
      client.setQueryData(trainingQuery(id).queryKey, training);
      return client.invalidateQueries({ queryKey: ["trainings", "pages"] });
    },
    onError,
  });
  const remove = useMutation({
    mutationFn: () => deleteTraining(id),
    onSuccess: () => {
      navigate("/trainings");
      notice({ text: `The training of ${task} is deleted.` });
      return client.invalidateQueries({ queryKey: ["trainings", "pages"] });
    },
    onError,
  });
  return { change: change.mutate, remove: remove.mutate, isPending: change.isPending || remove.isPending };
}

function About({ training: { id, request } }: { training: Training }) {
  return (
    <span className={styles.about}>
      <span>{String(request?.task_type ?? "classification")}</span>
      <span>{String(request?.preset ?? request?.recipe ?? "default preset")}</span>
      <code>{id}</code>
    </span>
  );
}

interface ConfirmationProps {
  step: Step;
  task: string;
  onKeep: () => void;
  onConfirm: () => void;
}

function Confirmation({ step, task, onKeep, onConfirm }: ConfirmationProps) {
  const isCancel = step === "cancel";
  return (
    <Dialog title={isCancel ? `Cancel the training of ${task}?` : `Delete the training of ${task}?`} onClose={onKeep}>
      <p>
        {isCancel
          ? "Nothing is published. A cancelled training cannot be resumed; a paused one can."
          : "Its events and the rows that were sent with it are deleted. Its adapter stays."}
      </p>
      <Dialog.Actions>
        <Button onClick={onKeep}>Keep it</Button>
        <Button kind="danger" onClick={onConfirm}>
          {isCancel ? "Cancel the training" : "Delete"}
        </Button>
      </Dialog.Actions>
    </Dialog>
  );
}
