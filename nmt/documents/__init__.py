"""Documents: files whose text is translated, while everything else in them stays."""
