import { useState } from "react";
import { Field } from "@/widgets/field/Field";
import { DropArea } from "@/widgets/file/DropArea";
import { FilesButton } from "@/widgets/file/FilesButton";
import { PageHeading } from "@/widgets/heading/PageHeading";
import { useNotice } from "@/widgets/notice/notices";
import { EmptyState } from "@/widgets/states/EmptyState";
import { pairUp } from "./artifacts";
import { UploadItem } from "./UploadItem";
import styles from "./upload.module.css";
import { useUploads } from "./useUploads";

export default function UploadPage() {
  const [name, setName] = useState("");
  const [alias, setAlias] = useState("");
  const { items, add, cancel, again } = useUploads();
  const notify = useNotice();
  const drop = (files: readonly File[]) => {
    const { artifacts, lonely } = pairUp(files);
    for (const report of lonely) notify({ tone: "bad", text: `${report} needs the artifact that it is of beside it.` });
    add(artifacts, { name: name.trim(), alias: alias.trim() });
  };
  return (
    <DropArea className={styles.page} onFiles={drop}>
      <PageHeading title="Upload" about="An artifact goes live only if this server reproduces its golden examples." />
      <div className={styles.form}>
        <Field label="Name" hint="Empty: the name in the manifest.">
          <input
            value={name}
            spellCheck={false}
            placeholder="intent"
            onChange={(event) => setName(event.target.value)}
          />
        </Field>
        <Field label="Alias" hint="Means the new version at once. Empty: none.">
          <input
            value={alias}
            spellCheck={false}
            placeholder="canary"
            onChange={(event) => setAlias(event.target.value)}
          />
        </Field>
      </div>
      <div className={styles.zone}>
        <p>Drop artifacts anywhere on this page, each with its report if there is one</p>
        <FilesButton label="Choose files…" what="Artifacts" accept=".safetensors,.json" onFiles={drop} />
      </div>
      {items.length === 0 && (
        <EmptyState title="Where an artifact comes from">
          <p>
            <code>peltier train</code> writes one; <code>peltier import</code> makes one of an adapter of AdapterHub or
            PEFT. The file ends with <code>.safetensors</code>. <code>NAME.report.json</code> beside it is shown on the
            adapter's page.
          </p>
        </EmptyState>
      )}
      <div className={styles.items}>
        {items.map((item) => (
          <UploadItem key={item.id} item={item} onCancel={() => cancel(item.id)} onAgain={() => again(item)} />
        ))}
      </div>
    </DropArea>
  );
}
