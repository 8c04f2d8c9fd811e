import type { ApiError } from "@/api/error";
import { counted } from "@/widgets/format/numbers";
import { Scroller } from "@/widgets/scroll/Scroller";
import { nextStep } from "@/widgets/states/nextStep";
import type { Header } from "./header";
import { type Place, placesOf } from "./report";
import styles from "./upload.module.css";
import { valueAt } from "./valueAt";

interface Props {
  error: ApiError;
  header: Header | null;
}

const TITLES = { tensor: "Tensor", field: "Manifest", part: "Part", golden: "Golden example", file: "File" };

/** Why an artifact was refused: every reason at its tensor or field. */
export function Report({ error, header }: Props) {
  const reasons = error.details.filter((reason): reason is string => typeof reason === "string");
  const places = placesOf(reasons);
  const refused = new Set(places.filter(({ kind }) => kind === "tensor").map(({ name }) => name));
  const sound = header?.tensors.filter(({ name }) => !refused.has(name)) ?? [];
  return (
    <div role="alert">
      <p className={styles.message}>
        {reasons.length > 0
          ? `The server refuses the artifact for ${counted(reasons.length, "reason")}.`
          : error.message}
      </p>
      {reasons.length === 0 && <p className={styles.note}>{nextStep(error).advice}</p>}
      {places.length > 0 && (
        <Scroller label="Reasons">
          <table className={styles.report}>
            <thead>
              <tr>
                <th scope="col">Where</th>
                <th scope="col">In the file</th>
                <th scope="col">Reason</th>
              </tr>
            </thead>
            <tbody>
              {places.map((place) => (
                <PlaceRow key={`${place.kind} ${place.name}`} place={place} header={header} />
              ))}
            </tbody>
          </table>
        </Scroller>
      )}
      {refused.size > 0 && sound.length > 0 && (
        <p className={styles.note}>Nothing is said against the other {counted(sound.length, "tensor")}.</p>
      )}
    </div>
  );
}

function PlaceRow({ place, header }: { place: Place; header: Header | null }) {
  return (
    <tr>
      <th scope="row">
        <span className={styles.kind}>{TITLES[place.kind]}</span> <code>{place.name}</code>
      </th>
      <td>
        <code>{header ? valueAt(header, place) : "–"}</code>
      </td>
      <td>
        {place.reasons.map((reason) => (
          <p key={reason}>{reason}</p>
        ))}
      </td>
    </tr>
  );
}
