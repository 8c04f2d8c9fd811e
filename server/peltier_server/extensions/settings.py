"""Every setting of the server: those of the core, and those of the extensions. Imports nothing heavy."""

from collections.abc import Mapping

from pydantic import Field

from peltier_server.extensions.batches.settings import BatchSettings
from peltier_server.extensions.files.settings import FileSettings
from peltier_server.extensions.grpc.settings import GrpcSettings
from peltier_server.extensions.oidc.settings import OidcSettings
from peltier_server.extensions.picker.settings import RoutingSettings
from peltier_server.extensions.ray.settings import ClusterSettings
from peltier_server.extensions.rollouts.settings import FeedbackSettings
from peltier_server.extensions.trainings.settings import TrainingSettings
from peltier_server.settings import AuthSettings, CoreSettings, NetworkSettings
from peltier_server.settings_group import group_names, groups_of, settings_of
from peltier_server.settings_reader import read_settings


class ServerNetworkSettings(GrpcSettings, NetworkSettings):
    """The address of the server."""


class ServerAuthSettings(OidcSettings, AuthSettings):
    """The keys outside the registry, and the identity provider whose tokens are accepted."""


class ServerTrainingSettings(FileSettings, TrainingSettings):
    """The files of examples that the server accepts, and the workers beside it."""


class Settings(CoreSettings):
    """The settings of one server, as `CoreSettings`."""

    network: ServerNetworkSettings = Field(default_factory=ServerNetworkSettings)
    auth: ServerAuthSettings = Field(default_factory=ServerAuthSettings)
    routing: RoutingSettings = Field(default_factory=RoutingSettings)
    feedback: FeedbackSettings = Field(default_factory=FeedbackSettings)
    cluster: ClusterSettings = Field(default_factory=ClusterSettings)
    training: ServerTrainingSettings = Field(default_factory=ServerTrainingSettings)
    batches: BatchSettings = Field(default_factory=BatchSettings)


GROUPS = groups_of(Settings)
# Every setting by its name, and the group that it belongs to.
SETTINGS = settings_of(Settings)
GROUP_OF = group_names(Settings)


def load_settings(flags: Mapping[str, object]) -> Settings:
    """The settings from `flags`, the environment and a TOML file, as `read_settings` reads them."""
    return read_settings(flags, Settings)
