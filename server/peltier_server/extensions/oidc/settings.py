"""The settings of the identity provider, which are among those of the keys."""

from typing import Self

from pydantic import model_validator

from peltier_server.settings_group import SettingsGroup, setting


class OidcSettings(SettingsGroup):
    """The identity provider whose tokens are accepted."""

    oidc_issuer: str | None = setting(None, "Issuer of accepted tokens, a URL.")
    oidc_audience: str | None = setting(None, "Audience of accepted tokens.")
    oidc_jwks_url: str | None = setting(None, "URL of the provider's public keys.")
    oidc_tenant_claim: str = setting("tenant", "Claim that names the tenant.")
    oidc_scope_claim: str = setting("scope", "Claim that lists the scopes.")

    @model_validator(mode="after")
    def _check_provider(self) -> Self:
        given = {name: getattr(self, name) for name in ("oidc_issuer", "oidc_audience", "oidc_jwks_url")}
        missing = [name for name, value in given.items() if value is None]
        if missing and len(missing) < len(given):
            raise ValueError(f"an identity provider needs {', '.join(given)}; missing: {', '.join(missing)}")
        return self
