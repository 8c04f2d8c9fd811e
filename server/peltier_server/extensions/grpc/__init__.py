"""The Open Inference Protocol over gRPC: each call is a request of the same app, with the same rules, as over HTTP."""
