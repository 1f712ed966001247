"""Carries out plans: the life of a plan in `plans`, of a move in `moves`, of a room in `rooms`.

`validation` looks at a plan again before anything is begun, `nodes` has what a plan writes on nodes.
"""
