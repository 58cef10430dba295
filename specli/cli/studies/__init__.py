"""What `stats` and `synth` show: tables, plots, replay and tuning reports."""
