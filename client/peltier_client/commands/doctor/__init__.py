"""What `peltier doctor` finds out. Packages add their own checks under the entry points `peltier.checks`."""
