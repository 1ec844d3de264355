"""What the tests of voting members run on."""

import pytest

from tests.harness.topology.voting_clusters import VotingMemoryCluster


@pytest.fixture
def cluster() -> VotingMemoryCluster:
    return VotingMemoryCluster()
