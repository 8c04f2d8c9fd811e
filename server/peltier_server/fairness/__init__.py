"""Shares limited resources between tenants, by turns and bounds."""
