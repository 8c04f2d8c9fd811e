"""From a resolved task to an answer: tokenising, waiting, generating, writing."""
