"""Optional parts of the descheduler, a folder for each; only `berth_descheduler.registry` imports one."""
