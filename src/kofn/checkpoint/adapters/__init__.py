"""How a case reaches a program, and what is observed of it."""
