// Uploads with progress, which `fetch` does not report.
import { ApiError, errorFrom, noAnswer } from "./error";
import { currentKey, refuseKey } from "./key";
import { ROOT, type Schema } from "./server";

export interface UploadTarget {
  /** Empty means the name in the manifest. */
  name: string;
  /** An alias that is to mean the version at once; empty means none. */
  alias: string;
}

export interface Artifact {
  file: File;
  /** NAME.report.json of NAME.safetensors; null if it was not given. */
  report: File | null;
}

type Answered = Schema<"UploadedVersion">;

/** Publishes an artifact with the report of its training. `onSent` gets the share of the bytes that have been sent; the check of the server follows. */
export function uploadArtifact(
  { file, report }: Artifact,
  { name, alias }: UploadTarget,
  onSent: (share: number) => void,
  signal: AbortSignal,
): Promise<Answered> {
  const form = new FormData();
  form.append("file", file);
  if (report) form.append("report", report);
  if (name) form.append("name", name);
  if (alias) form.append("alias", alias);
  const { key } = currentKey();
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `${ROOT}/v1/adapters`);
    if (key) request.setRequestHeader("authorization", `Bearer ${key}`);
    request.upload.onprogress = ({ loaded, total }) => onSent(total > 0 ? loaded / total : 0);
    request.onload = () => {
      if (request.status < 300) return resolve(JSON.parse(request.responseText) as Answered);
      const error = errorFrom(request.status, request.responseText, (header) => request.getResponseHeader(header));
      if (error.status === 401) refuseKey(key, error.message);
      return reject(error);
    };
    request.onerror = () => reject(noAnswer());
    request.onabort = () => reject(new ApiError("The upload was cancelled.", 0, "cancelled"));
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}
