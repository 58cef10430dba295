"""How the demo models were made; `python -m specli.demo.train` runs it, nothing else imports it."""
