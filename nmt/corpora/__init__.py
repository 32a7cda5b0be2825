"""Reads files of sentence pairs as translators, companies and researchers have them: TMX, tables, archives and others."""
