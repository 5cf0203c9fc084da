"""Task apps and configs that really train on a laptop, each with the command that runs it end to end."""
