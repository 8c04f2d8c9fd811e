import { useQuery } from "@tanstack/react-query";
import type { Schema } from "@/api/server";
import { tenantUsage } from "@/api/tenants";
import { bytes, significant, whole } from "@/widgets/format/numbers";
import { ErrorState } from "@/widgets/states/ErrorState";
import { Loading } from "@/widgets/states/Loading";
import styles from "./Usage.module.css";
import { UsageBar } from "./UsageBar";

type Rate = Schema<"RateUsage"> | null;

interface Props {
  name: string;
  quotas: Schema<"TenantQuotas">;
}

/** What a tenant uses now of each of its quotas. */
export function Usage({ name, quotas }: Props) {
  const { data, error, refetch } = useQuery(tenantUsage(name));
  if (error) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (!data) return <Loading label="Reading the usage" />;
  return (
    <div className={styles.bars}>
      <UsageBar {...rate("Requests", data.requests)} format={whole} />
      <UsageBar {...rate("Tokens", data.tokens)} format={whole} />
      <UsageBar
        name="Requests at a time"
        used={data.concurrent_requests}
        limit={quotas.max_concurrent_requests}
        format={whole}
      />
      <UsageBar name="Stored bytes" used={data.stored_bytes} limit={quotas.max_stored_bytes} format={bytes} />
      <UsageBar name="Adapters" used={data.adapters} limit={quotas.max_adapters} format={whole} />
      <UsageBar name="Trainings" used={data.trainings} limit={quotas.max_trainings} format={whole} />
      <UsageBar
        name="Training minutes in 24 hours"
        used={data.training_minutes}
        limit={quotas.max_training_minutes_per_day}
        format={significant}
      />
    </div>
  );
}

function rate(name: string, usage: Rate) {
  return usage
    ? {
        name: `${name} in the last ${usage.seconds === 1 ? "second" : `${usage.seconds} s`}`,
        used: usage.used,
        limit: usage.limit,
      }
    : { name: `${name} a second`, used: null, limit: null };
}
