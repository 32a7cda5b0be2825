"""Reads files of sentence pairs as people have them: TMX, bilingual documents, tables and archives."""
