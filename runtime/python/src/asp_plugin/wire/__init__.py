"""Generated messages of the platform-plugin protocol."""
