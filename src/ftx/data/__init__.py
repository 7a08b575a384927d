"""From files to token ids: strict reading, splits frozen by content, templates and masks."""
