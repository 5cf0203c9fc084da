"""Walk to a goal in two turns: the quickest demo whose reward climbs for a reason."""
