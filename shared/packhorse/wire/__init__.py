"""The messages of the five topics, as frozen dataclasses and as protobuf bytes."""
