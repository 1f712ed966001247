"""The rehearsal of `berth plan --rehearse`, and the twin it runs on."""
