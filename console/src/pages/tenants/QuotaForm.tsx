import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { answer, api } from "@/api/server";
import { Button } from "@/widgets/button/Button";
import { useNotice } from "@/widgets/notice/notices";
import { Failure } from "./Failure";
import styles from "./Form.module.css";
import { QuotaFields } from "./QuotaFields";
import { type Quotas, quotasOf, textsOf } from "./quotas";

interface Props {
  name: string;
  quotas: Quotas;
}

/** Sets all quotas of a tenant. */
export function QuotaForm({ name, quotas }: Props) {
  const [texts, setTexts] = useState(() => textsOf(quotas));
  const client = useQueryClient();
  const notify = useNotice();
  const { mutate, error, isPending } = useMutation({
    mutationFn: (body: Quotas) => answer(api.PUT("/v1/tenants/{tenant}", { params: { path: { tenant: name } }, body })),
    onSuccess: () => {
      notify({ tone: "good", text: `The quotas of ${name} hold within a second.` });
      return client.invalidateQueries({ queryKey: ["tenants"] });
    },
  });
  const isChanged = JSON.stringify(textsOf(quotas)) !== JSON.stringify(texts);
  const save = (event: FormEvent) => {
    event.preventDefault();
    mutate(quotasOf(texts));
  };
  return (
    <form onSubmit={save} className={styles.form}>
      <QuotaFields texts={texts} onChange={setTexts} />
      <Failure error={error} />
      <p>
        <Button kind="primary" type="submit" disabled={!isChanged || isPending}>
          Set quotas
        </Button>{" "}
        {isChanged && <Button onClick={() => setTexts(textsOf(quotas))}>Discard changes</Button>}
      </p>
    </form>
  );
}
