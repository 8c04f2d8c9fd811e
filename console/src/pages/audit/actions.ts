// The actions that the server records.
export const ACTIONS = [
  "publish",
  "set_report",
  "delete_version",
  "delete_adapter",
  "undelete",
  "purge",
  "deprecate",
  "set_public",
  "set_alias",
  "rollback_alias",
  "delete_alias",
  "create_tenant",
  "update_tenant",
  "create_key",
  "revoke_key",
] as const;
