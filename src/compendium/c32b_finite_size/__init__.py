"""How the average over tokens of N bits deviates from its mean-field limit."""
