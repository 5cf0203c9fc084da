"""`headrace`: the command line over the API, and the local stack."""
