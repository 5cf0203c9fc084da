"""The dashboard: web pages over the API, live without reload. It knows no database and no queue."""
