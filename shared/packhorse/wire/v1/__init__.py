"""Generated protobuf code; only `packhorse.wire` imports it."""
