"""The tokens of an identity provider as an extension."""

from peltier_server.auth.authenticator import TokenReader
from peltier_server.extension import Extension
from peltier_server.extensions.oidc.settings import OidcSettings
from peltier_server.settings import CoreSettings, SettingsError


def _create_tokens(settings: CoreSettings) -> TokenReader | None:
    own = settings.group(OidcSettings)
    issuer, audience, jwks_url = own.oidc_issuer, own.oidc_audience, own.oidc_jwks_url
    if issuer is None or audience is None or jwks_url is None:
        return None
    try:
        from peltier_server.extensions.oidc.tokens import OidcTokens, Provider
    except ModuleNotFoundError as error:
        raise SettingsError(f'oidc_issuer needs {error.name}: pip install "peltier[oidc]"') from None
    return OidcTokens(Provider(issuer, audience, jwks_url, own.oidc_tenant_claim, own.oidc_scope_claim))


OIDC = Extension("oidc", settings=OidcSettings, create_tokens=_create_tokens)
