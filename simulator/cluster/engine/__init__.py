"""Compiled engine of the cluster simulator. Python handles events that concern a scheduler; this code does the rest."""
