"""The carrying out of one plan: places held, pods evicted, moves and rooms tended until all are over or undone."""
