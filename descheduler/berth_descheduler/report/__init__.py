"""Plans, runs and clusters as texts, tables, pages and JSON documents."""
