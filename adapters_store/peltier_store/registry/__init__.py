"""The registry: tenants, keys, adapters, versions, aliases and the audit log."""

from peltier_store.registry.errors import (
    AdapterUnknown,
    BatchUnknown,
    BlobBusy,
    FileUnknown,
    InvalidRecord,
    KeyUnknown,
    LeaseLost,
    NotRegistered,
    QuotaReached,
    RegistryConflict,
    RegistryError,
    RegistryFull,
    RegistryGone,
    RegistryRewound,
    TenantUnknown,
    TrainingTooLarge,
    TrainingUnknown,
    TrainingWaits,
    VersionUnknown,
)
from peltier_store.registry.extensions.queue import create_holder_name
from peltier_store.registry.extensions.queue_records import (
    BATCH_STATES,
    ENDED_BATCHES,
    EVENTS,
    FINAL_STATES,
    STATES,
    BatchDraft,
    BatchPart,
    IdempotencyKey,
    NewEvent,
    NewFile,
    StoredBatch,
    StoredEvent,
    StoredFile,
    StoredTraining,
    TrainingDraft,
    TrainingSummary,
)
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.extensions.training_holder import TrainingHold
from peltier_store.registry.records import (
    MAX_WEIGHT,
    MIN_WEIGHT,
    SCOPES,
    AdapterRecord,
    AliasHistoryEntry,
    AliasRecord,
    AuditEntry,
    AuditFilter,
    Key,
    Pin,
    Position,
    Quotas,
    QuotaUsage,
    RegistrySnapshot,
    Reservation,
    TenantRecord,
    VersionRecord,
)
from peltier_store.registry.registry import OnPublish
