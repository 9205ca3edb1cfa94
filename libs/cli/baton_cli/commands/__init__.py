"""One module for each group of commands: arguments in, text out."""
