import { useQuery } from "@tanstack/react-query";
import { tenantInfo } from "@/api/tenants";
import panel from "@/widgets/panel/Panel.module.css";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import { Keys } from "./Keys";
import { QuotaForm } from "./QuotaForm";
import styles from "./TenantDetail.module.css";
import { Usage } from "./Usage";

/** One tenant: what it uses, what it may use, and its keys. */
export function TenantDetail({ name }: { name: string }) {
  const { data, error, refetch } = useQuery(tenantInfo(name));
  if (error) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (!data) return <Loading label={`Reading ${name}`} />;
  return (
    <div className={styles.detail}>
      <section className={panel.panel} aria-label={`Usage of ${name}`}>
        <h2>Usage of {name}</h2>
        <Usage name={name} quotas={data.quotas} />
      </section>
      <section className={panel.panel} aria-label={`Quotas of ${name}`}>
        <h2>Quotas</h2>
        <QuotaForm key={JSON.stringify(data.quotas)} name={name} quotas={data.quotas} />
      </section>
      <section className={panel.panel} aria-label={`Keys of ${name}`}>
        <Keys tenant={name} />
      </section>
    </div>
  );
}
