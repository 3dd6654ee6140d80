"""The table of metrics, and the conversion of snapshots into metric families."""
