"""The commands, one module each: options to config, a call, output."""
