"""A store of each file format that pystate has ever had, as that version wrote it; see ``test_formats_kept``."""
