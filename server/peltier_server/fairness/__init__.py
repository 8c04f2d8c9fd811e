"""How tenants share what is limited: turns, bounds and shares."""
