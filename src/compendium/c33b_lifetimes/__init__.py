"""How long chaos lasts, what slows it, and escapes from cycles by the noise of finite N."""
