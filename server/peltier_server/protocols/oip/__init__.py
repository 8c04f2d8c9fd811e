"""The Open Inference Protocol, version 2, over HTTP: a model is a task, and its tensors are texts and answers."""
