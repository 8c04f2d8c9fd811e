"""The one thread that computes, what it does with what fails, and who relieves it."""
