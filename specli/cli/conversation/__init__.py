"""The chat: input lines, slash commands, the view of answers and thoughts."""
