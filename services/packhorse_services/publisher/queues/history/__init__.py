"""How long each queue was and how far behind, minute by minute: sampled, kept a day, asked for."""
