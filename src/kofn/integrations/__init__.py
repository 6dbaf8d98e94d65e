"""kofn inside other tools."""
