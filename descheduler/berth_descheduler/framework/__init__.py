"""What plugins and the planner share: the face for third parties."""

import berth_descheduler.planner  # noqa: F401 - its settings hold the plugins: it comes first, whoever asks
