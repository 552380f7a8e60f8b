"""From files and frames to recordings, segments and rows."""
