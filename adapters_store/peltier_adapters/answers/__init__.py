"""From the outputs of a batch to answers, one module for each kind of answer."""
