"""The messages that services exchange: frozen, versioned, each with an id that makes handling idempotent.

They are the domain data; there is no second set of models.
"""
