"""How plans, runs and clusters are shown: texts, tables, pages and JSON; it decides nothing and calls no server."""
