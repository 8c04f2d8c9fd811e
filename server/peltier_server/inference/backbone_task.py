"""The server's backbone without an adapter, as a task that embeds texts."""

from dataclasses import dataclass
from datetime import UTC, datetime

from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.manifest import Golden, Manifest
from peltier_adapters.golden.proof import create_reference
from peltier_adapters.spec.parts import HeadSpec
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_client.errors import AdapterNotFound
from peltier_client.protocol.names import BACKBONE_TASK
from peltier_store.registry.records import VersionRecord

from peltier_server.catalog.published import Entry

# No tenant can have this name.
_OWNER = "_peltier"
_PRESET = "backbone"


@dataclass(frozen=True)
class BackboneTask:
    """The entry of the task, and an artifact of its head, which has no tensors and is in no store."""

    entry: Entry
    artifact: Artifact

    @staticmethod
    def refusal(config: BackboneConfig) -> str | None:
        """Why the backbone has no such task; None if it has. A T5 has no pooled vector, and the vectors of some
        sentence-transformers checkpoints pass a module that is not computed here."""
        if config.generates:
            return f"{BACKBONE_TASK!r} embeds texts with an encoder; this server's backbone is a T5"
        if config.unserved_module is not None:
            module = config.unserved_module
            return f"{BACKBONE_TASK!r} does not compute the module {module} of this server's backbone"
        return None

    @classmethod
    def of(cls, backbone: Backbone) -> "BackboneTask":
        """Embeddings of unit length by the pooling that the checkpoint was trained with, or by the mean over tokens.
        Raises `AdapterNotFound` if there is a `refusal`."""
        config = backbone.config
        if reason := cls.refusal(config):
            raise AdapterNotFound(reason)
        task = TaskSpec(type="embedding", labels=(), inputs="single", max_length=config.max_tokens, normalized=True)
        size = config.hidden_size
        trained_with = config.sentence_pooling
        head = HeadSpec(pooling=trained_with or "mean", projection=False, outputs=size)
        golden = Golden(input=BACKBONE_TASK, output=(0.0,) * size)
        manifest = Manifest(
            name="backbone", preset=_PRESET, parts=(head,), backbone=create_reference(backbone), task=task,
            golden=(golden,),
        )  # fmt: skip
        version = VersionRecord(
            tenant=_OWNER, name=BACKBONE_TASK, number=1, digest=backbone.fingerprint, size_bytes=0, preset=_PRESET,
            manifest="", created_at=datetime.now(UTC),
        )  # fmt: skip
        return cls(Entry.of(version, manifest), Artifact(manifest, {}, backbone.fingerprint))
